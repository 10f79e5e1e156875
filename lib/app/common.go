package app

import "github.com/urfave/cli/v2"

// ConfigFlag is the flag that names the configuration, the same in all tools.
func ConfigFlag() cli.Flag {
	return &cli.StringFlag{Name: "config", Aliases: []string{"c"}, Usage: "read the configuration `FILE` (default: $PONOS_CONFIG, ~/.config/ponos/ponos.yaml, /etc/ponos/ponos.yaml)"}
}

// VerboseFlag is the flag that says more on standard error.
func VerboseFlag() cli.Flag {
	return &cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "tell on standard error what is done"}
}

// JSONFlag is the flag for output for programs.
func JSONFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print JSON instead of a table"}
}
