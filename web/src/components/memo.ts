// A component that renders again only when `same` says that its properties differ: what preact/compat has, without the
// rest of it.

import {
  type ComponentChildren,
  type ComponentType,
  h,
  Component as PreactComponent,
} from "preact";

export function memo<Props extends object>(
  render: (props: Props) => ComponentChildren,
  same: (before: Props, after: Props) => boolean,
): ComponentType<Props> {
  return class Memo extends PreactComponent<Props> {
    override shouldComponentUpdate(next: Props): boolean {
      return !same(this.props as Props, next);
    }

    override render(props: Props): ComponentChildren {
      return h(render as ComponentType<Props>, props as never);
    }
  } as unknown as ComponentType<Props>;
}
