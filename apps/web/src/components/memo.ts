// A component that renders again only if `same` says that its properties differ: like preact/compat's memo, without
// the rest of that package.

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
