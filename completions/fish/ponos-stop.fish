# fish completion of ponos-stop, made by completions/generate

complete -c ponos-stop -f -a '(ponos-task words tasks (commandline -ct | string replace -r \'^(--[a-z-]+=)?["\\\']?\' \'\') 2>/dev/null)'
complete -c ponos-stop -l config -s c -r -F -d 'read the configuration FILE (default: $PONOS_CONFIG, ~/.config/ponos/ponos.yaml, /etc/ponos/ponos.yaml)'
complete -c ponos-stop -l jobs -s j -x -d 'stop N tasks at a time'
complete -c ponos-stop -l verbose -s v -d 'report each step on standard error'
complete -c ponos-stop -l version -s V -d 'print the version and exit'
complete -c ponos-stop -l help -s h -d 'show help'
