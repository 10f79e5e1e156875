package lfind

import (
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/advise/launcher/convert"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// convert writes launchers.yaml: from a file, from a pipe, or else from what Slurm
// says when it is asked.
func (s *session) convert(c *cli.Context) error {
	snapshot, err := s.nodes(c, c.Args().First())
	if err != nil {
		return err
	}
	gpus, err := gpu.Load(os.Getenv)
	if err != nil {
		return err
	}
	options := convert.Options{ID: c.String("id"), Tags: listed(c.StringSlice("tags")), NoHosts: c.Bool("no-hosts"), GPUs: gpus}
	if c.String("to") == "snakemake" {
		return convert.WriteSnakemake(s.stdout, snapshot, options)
	}
	for _, text := range convert.Unsaid(snapshot, options) {
		s.note(c, "note: the file cannot express %s", text)
	}
	return convert.Write(s.stdout, snapshot, options)
}

func (s *session) nodes(c *cli.Context, path string) (*cluster.Snapshot, error) {
	in := s.stdin
	switch {
	case path != "" && path != "-":
		f, err := os.Open(path)
		if err != nil {
			return nil, fault.Wrap(fault.Usage, err)
		}
		defer f.Close()
		in = f
	case path == "" && isDevice(s.stdin):
		var doubts slurm.Doubts
		snapshot, err := cluster.Asker{Slurm: &slurm.Client{Odd: doubts.Add}, Now: clock.Now}.Ask(c.Context)
		for _, doubt := range doubts.Warnings() {
			s.note(c, "warning: %s", doubt)
		}
		return snapshot, err
	}
	snapshot, err := convert.Read(in)
	return snapshot, fault.Wrap(fault.Usage, err)
}

// isDevice reports whether a reader is a terminal, or /dev/null as in cron: no program
// sends anything.
func isDevice(r io.Reader) bool {
	f, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err != nil || info.Mode()&os.ModeCharDevice != 0
}
