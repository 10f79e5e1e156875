# fish completion of ponos, made by completions/generate

complete -c ponos -n 'test (count (commandline -opc)) -eq 1' -f -a 'fairshare jobpool lfind ponos-cancel ponos-list ponos-log ponos-poll ponos-retry ponos-setup ponos-start ponos-stop ponos-submit ponos-task ponos-worker vast-offers vast-reap'
complete -c ponos -n 'test (count (commandline -opc)) -gt 1' -f -a '(__fish_complete_subcommand)'
complete -c ponos -n 'test (count (commandline -opc)) -eq 1' -l version -s V -d 'print the version and exit'
complete -c ponos -n 'test (count (commandline -opc)) -eq 1' -l help -s h -d 'show help'
