#!/bin/sh
# Gives a user an agent: sh add-user.sh USER, as root on the host from which jobs are
# submitted. Run it again after a change of user.conf.
set -eu
user=${1:?usage: sh add-user.sh USER}
id "$user" >/dev/null
here=$(dirname "$0")
home=$(getent passwd "$user" | cut -d : -f 6)
# As the user: root may not be allowed to write to home directories (NFS with root_squash).
runuser -u "$user" -- install -d -m 700 "$home/ponos"
runuser -u "$user" -- mkdir -p "$home/.cache" "$home/.local/state/ponos"
ln -sfn ponos.yaml "/etc/ponos/$user.yaml"
drop=/etc/systemd/system/ponos@$user.service.d
mkdir -p "$drop"
sed "s,/home/%i,$home,g" "$here/user.conf" >"$drop/user.conf"
systemctl daemon-reload
systemctl enable --now "ponos@$user"
