package main

import (
	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/queue/spool"
)

// requestFlags say what a task needs.
func requestFlags() []cli.Flag { return nil }

// request notes what a task needs.
func request(*cli.Context, *spool.Entry) error { return nil }
