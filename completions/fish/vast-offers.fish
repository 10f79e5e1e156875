# fish completion of vast-offers, made by completions/generate

complete -c vast-offers -f
complete -c vast-offers -l config -s c -r -F -d 'read the configuration FILE (default: $PONOS_CONFIG, ~/.config/ponos/ponos.yaml, /etc/ponos/ponos.yaml)'
complete -c vast-offers -l explain -s e -d 'show for each filter how many offers it removes'
complete -c vast-offers -l find -x -a '(ponos-task words requests (commandline -ct | string replace -r \'^(--[a-z-]+=)?["\\\']?\' \'\') 2>/dev/null)' -d 'show offers for the resource request REQUEST instead of vast_api.find'
complete -c vast-offers -l limit -s n -x -d 'show at most N offers; 0: all'
complete -c vast-offers -l json -d 'print JSON instead of a table'
complete -c vast-offers -l version -s V -d 'print the version and exit'
complete -c vast-offers -l help -s h -d 'show help'
