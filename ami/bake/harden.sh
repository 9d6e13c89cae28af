#!/usr/bin/env bash
# Hardening after the CIS benchmark for Ubuntu, as far as it leaves Neuron, Docker and Session Manager at work.
# Left as they are, on purpose: loadable modules (the driver is one), squashfs (the SSM agent is a snap), IP forwarding
# (Docker's), user namespaces. `harden.sh CHIPS`, where cpu alone has no Neuron driver. Not run on hardware;
# tests/ami/test_bake.py runs it on a folder.
set -euo pipefail

chips=${1:?usage: harden.sh CHIPS}
root=${PEAKPLAN_ROOT:-}

write() { # path mode, contents on standard input
  install -d -m 0755 "$root$(dirname "$1")"
  cat >"$root$1"
  chmod "$2" "$root$1"
}

# A process that may open a Neuron device may read the host's memory (AWS Neuron, Security Disclosures).
devices() {
  if [[ $chips == cpu ]]; then return; fi
  getent group neuron >/dev/null || groupadd --system neuron
  write /etc/udev/rules.d/99-peakplan-neuron.rules 0644 <<'END'
SUBSYSTEM=="neuron*", KERNEL=="neuron*", GROUP="neuron", MODE="0660"
END
  udevadm control --reload
  udevadm trigger --subsystem-match='neuron*'
  udevadm settle
}

kernel() {
  write /etc/sysctl.d/90-peakplan.conf 0644 <<'END'
fs.protected_fifos = 2
fs.protected_hardlinks = 1
fs.protected_regular = 2
fs.protected_symlinks = 1
fs.suid_dumpable = 0
kernel.dmesg_restrict = 1
kernel.kptr_restrict = 2
kernel.randomize_va_space = 2
kernel.unprivileged_bpf_disabled = 1
kernel.yama.ptrace_scope = 1
net.ipv4.conf.all.accept_redirects = 0
net.ipv4.conf.all.accept_source_route = 0
net.ipv4.conf.all.log_martians = 1
net.ipv4.conf.all.rp_filter = 1
net.ipv4.conf.all.secure_redirects = 0
net.ipv4.conf.all.send_redirects = 0
net.ipv4.icmp_echo_ignore_broadcasts = 1
net.ipv4.icmp_ignore_bogus_error_responses = 1
net.ipv4.tcp_syncookies = 1
net.ipv6.conf.all.accept_redirects = 0
net.ipv6.conf.all.accept_source_route = 0
END
  sysctl --quiet --load "$root/etc/sysctl.d/90-peakplan.conf"
  write /etc/modprobe.d/peakplan.conf 0644 <<'END'
install cramfs /bin/false
install freevxfs /bin/false
install hfs /bin/false
install hfsplus /bin/false
install jffs2 /bin/false
install udf /bin/false
install usb-storage /bin/false
install dccp /bin/false
install rds /bin/false
install sctp /bin/false
install tipc /bin/false
END
  write /etc/security/limits.d/90-peakplan.conf 0644 <<'END'
* hard core 0
END
  write /etc/systemd/coredump.conf.d/90-peakplan.conf 0644 <<'END'
[Coredump]
Storage=none
ProcessSizeMax=0
END
}

# A host is replaced, never patched: a kernel that changes under the driver, or an upgrade at boot, helps nobody.
frozen() {
  local package unit
  for package in linux-aws linux-image-aws linux-headers-aws aws-neuronx-dkms docker-ce docker.io containerd.io containerd; do
    if dpkg-query --show "$package" >/dev/null 2>&1; then apt-mark hold "$package" >/dev/null; fi
  done
  for unit in apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service motd-news.timer man-db.timer; do
    systemctl mask --now "$unit"
  done
}

# People come through Session Manager, which needs no open port and writes down who did what.
remote_access() {
  local unit
  for unit in ssh.service ssh.socket rpcbind.service rpcbind.socket avahi-daemon.service cups.service; do
    systemctl mask --now "$unit"
  done
}

files() {
  chmod 0644 "$root/etc/passwd" "$root/etc/group"
  chmod 0640 "$root/etc/shadow" "$root/etc/gshadow"
  local folder
  for folder in cron.hourly cron.daily cron.weekly cron.monthly cron.d; do
    if [[ -d $root/etc/$folder ]]; then chmod 0700 "$root/etc/$folder"; fi
  done
  write /etc/docker/daemon.json 0644 <<'END'
{"icc": false, "live-restore": true, "log-driver": "local", "no-new-privileges": true, "userland-proxy": false}
END
  write /etc/systemd/journald.conf.d/90-peakplan.conf 0644 <<'END'
[Journal]
Storage=persistent
SystemMaxUse=1G
END
  systemctl restart docker.service
}

# What must still work.
proof() {
  if [[ $chips == cpu ]]; then return; fi
  modprobe neuron
  local device group
  for device in "$root"/dev/neuron[0-9]*; do
    if [[ ! -e $device ]]; then
      echo "hardened, and the Neuron devices are gone: no $device" >&2
      exit 1
    fi
    group=$(stat --format '%G %a' "$device")
    if [[ $group != "neuron 660" ]]; then
      echo "$device is '$group' instead of 'neuron 660': the udev rule does not hold" >&2
      exit 1
    fi
  done
}

for part in devices kernel frozen remote_access files proof; do "$part"; done
