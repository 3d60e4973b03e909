#!/usr/bin/env bash
# Mesa's lavapipe, a software Vulkan driver, for the tests of the GPU: a second driver finds what the first one forgives.
# Prints nothing and does nothing if the system's own is new enough. Debian 12's (Mesa 22) cannot index images dynamically, which
# Dawn demands, so the one of bookworm-backports is unpacked beside the dependencies there, and the system's is left unchanged.
# Needs apt-get, dpkg and root (for the libraries that it uses).

set -euo pipefail
cd "$(dirname "$0")/.."
folder="$PWD/node_modules/.cache/lavapipe"
[ -e "$folder/icd.json" ] && exit 0
for icd in /usr/share/vulkan/icd.d/lvp_icd*.json; do
  [ -e "$icd" ] || continue
  version=$(dpkg-query -W -f '${Version}' mesa-vulkan-drivers 2>/dev/null || echo 0)
  if dpkg --compare-versions "$version" ge 23.1; then exit 0; fi
done
export DEBIAN_FRONTEND=noninteractive
apt-get install -y -qq --no-install-recommends mesa-vulkan-drivers >/dev/null
if dpkg --compare-versions "$(dpkg-query -W -f '${Version}' mesa-vulkan-drivers)" ge 23.1; then exit 0; fi

# shellcheck disable=SC1091
. /etc/os-release
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/lists/partial" "$folder"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $VERSION_CODENAME-backports main" \
  >"$scratch/sources.list"
backports=(-o "Dir::Etc::sourcelist=$scratch/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$scratch/lists"
  -o APT::Sandbox::User=root)
apt-get "${backports[@]}" update -qq
(cd "$scratch" && apt-get "${backports[@]}" download -qq mesa-vulkan-drivers)
dpkg -x "$scratch"/mesa-vulkan-drivers_*.deb "$folder"
library=$(find "$folder" -name libvulkan_lvp.so)
printf '{"file_format_version":"1.0.0","ICD":{"library_path":"%s","api_version":"1.3.0"}}\n' "$library" >"$folder/icd.json"
