# fish completion of ponos, made by completions/generate

complete -c ponos -n 'test (count (commandline -opc)) -eq 1' -f -a 'cancel list log poll retry run setup start stop submit task worker fairshare jobpool lfind vast-offers vast-reap'
complete -c ponos -n 'test (count (commandline -opc)) -gt 1' -f -a '(set -l all (commandline -opc)[2..] (commandline -ct; or echo); if contains -- $all[1] cancel list log poll retry run setup start stop submit task worker; set all[1] ponos-$all[1]; end; complete -C "$all")'
complete -c ponos -n 'test (count (commandline -opc)) -eq 1' -l version -s V -d 'print the version and exit'
complete -c ponos -n 'test (count (commandline -opc)) -eq 1' -l help -s h -d 'show help'
