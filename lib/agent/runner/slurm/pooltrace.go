package slurm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
)

// traced is what a pool knows of a task that has removed its own directory.
type traced struct {
	class string
	seq   int64  // 0: it was not taken yet
	job   string // that of its last start; "": there was none
	over  bool
}

// trace finds a task by its key.
func (p *packs) trace(key string) (t traced, found bool, err error) {
	classes, err := p.classes()
	if err != nil {
		return t, false, err
	}
	for _, class := range classes {
		offers, err := input.Offers(p.run(class))
		if err != nil {
			return t, false, err
		}
		for i := range offers {
			lines, err := linesOf(&offers[i])
			if err != nil {
				return t, false, err
			}
			at := slices.IndexFunc(lines, func(l taskLine) bool { return l.Tag == key })
			if at < 0 {
				continue
			}
			if t.class = class; offers[i].First > 0 {
				t.seq = offers[i].First + int64(at)
				t.job, t.over, err = p.started(class, t.seq)
			}
			return t, true, err
		}
	}
	return t, false, nil
}

// started returns the job of the last start of a task, and whether that is over.
func (p *packs) started(class string, seq int64) (job string, over bool, err error) {
	f, err := os.Open(filepath.Join(p.run(class), journal.File))
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	for in := bufio.NewReader(f); ; {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return job, over, nil
		}
		if err != nil {
			return "", false, err
		}
		var rec journal.Record
		switch {
		case json.Unmarshal(line, &rec) != nil:
		case rec.Kind == journal.Send && journal.Names(rec.Tasks, seq):
			job, over = startOf(rec.Node, seq, rec.Attempt), false
		case (rec.Kind == journal.End || rec.Kind == journal.Try) && rec.Seq == seq:
			over = true
		}
	}
}

// startOf returns the job of a start at a node of a pool.
func startOf(node string, seq int64, attempt int32) string {
	_, at, _ := strings.Cut(node, "@")
	id, _, _ := strings.Cut(at, ".")
	job := fmt.Sprintf("%s.%d", id, seq)
	if attempt > 1 {
		job += "-" + strconv.Itoa(int(attempt))
	}
	return job
}

// classOf returns the class whose run has started a job.
func (p *packs) classOf(job string) (string, error) {
	text, _, _ := strings.Cut(job[strings.LastIndexByte(job, '.')+1:], "-")
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return "", nil // of a version before
	}
	classes, err := p.classes()
	for _, class := range classes {
		if last, _, err := p.started(class, seq); err == nil && last == job {
			return class, nil
		}
	}
	return "", err
}

// lines returns where the tasks of directories are.
func (p *packs) lines() (map[string]traced, error) {
	all := map[string]traced{}
	classes, err := p.classes()
	if err != nil {
		return nil, err
	}
	for _, class := range classes {
		offers, err := input.Offers(p.run(class))
		if err != nil {
			return nil, err
		}
		for i := range offers {
			lines, err := linesOf(&offers[i])
			if err != nil {
				return nil, err
			}
			for k, line := range lines {
				t := traced{class: class}
				if offers[i].First > 0 {
					t.seq = offers[i].First + int64(k)
				}
				if was := all[string(line.Cwd)]; t.seq == 0 || t.seq > was.seq || was.class != class {
					all[string(line.Cwd)] = t
				}
			}
		}
	}
	return all, nil
}
