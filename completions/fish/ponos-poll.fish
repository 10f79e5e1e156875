# fish completion of ponos-poll, made by completions/generate

complete -c ponos-poll -f
complete -c ponos-poll -l config -s c -r -F -d 'read the configuration FILE (default: $PONOS_CONFIG, ~/.config/ponos/ponos.yaml, /etc/ponos/ponos.yaml)'
complete -c ponos-poll -l every -s e -x -d 'take a turn every DURATION, such as 10s or 1m'
complete -c ponos-poll -l until-done -d 'with --every: exit when no task is left in the spool'
complete -c ponos-poll -l verbose -s v -d 'report each step on standard error'
complete -c ponos-poll -l version -s V -d 'print the version and exit'
complete -c ponos-poll -l help -s h -d 'show help'
