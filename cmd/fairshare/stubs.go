package main

import (
	"context"
	"github.com/urfave/cli/v2"
	"io"
)

func newHistoryView(a *asker, c *cli.Context) (view, error) { return nil, nil }

type whereView struct{}

const whereHelp = ""

func newWhereView(a *asker, args []string) (*whereView, bool, error)           { return nil, false, nil }
func showWhere(ctx context.Context, a *asker, v *whereView, w io.Writer) error { return nil }
