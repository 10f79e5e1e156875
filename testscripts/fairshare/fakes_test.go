package fairshare

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/testscripts/captures"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// answer is what stands in for Slurm's commands. It logs what it was asked to
// $ASKED and answers with the text NAME.txt or the capture NAME.table of $ANSWERS or
// else of $RECORDED; for scontrol NAME is what is to be shown. NAME.err goes to stderr, and the number in
// NAME.exit is the exit status. sbatch answers by its partition.
func answer(name string, args []string) int {
	if log, err := os.OpenFile(os.Getenv("ASKED"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
		fmt.Fprintln(log, name, strings.Join(args, " "))
		log.Close()
	}
	key := name
	switch name {
	case "scontrol":
		if key = args[len(args)-1]; len(key) > 0 && key[0] >= '0' && key[0] <= '9' {
			key = "job"
		}
	case "sacctmgr":
		key = "associations"
		for _, arg := range args {
			if arg == "qos" {
				key = arg
			}
		}
	case "sacct":
		key = "sacct-usage"
		for _, arg := range args {
			if strings.HasPrefix(arg, "--state=") {
				key = "sacct-ended" // of which none is recorded
			}
			if strings.Contains(arg, "Eligible") {
				key = "sacct-waits"
			}
		}
	case "sbatch":
		for _, arg := range args {
			if p, ok := strings.CutPrefix(arg, "--partition="); ok {
				key = "sbatch-" + p
			}
		}
	}
	if text, err := read(key + ".err"); err == nil {
		fmt.Fprint(os.Stderr, atNow(text))
	}
	if err := print(name, key, args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 98
	}
	if text, err := read(key + ".exit"); err == nil {
		code, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return 99
		}
		return code
	}
	return 0
}

// find returns the path of the first of these files.
func find(names ...string) string {
	for _, dir := range []string{os.Getenv("ANSWERS"), os.Getenv("RECORDED"), os.Getenv("COMMON")} {
		for _, name := range names {
			path := filepath.Join(dir, name)
			if _, err := os.Stat(path); err == nil && dir != "" {
				return path
			}
		}
	}
	return ""
}

func read(name string) (string, error) {
	b, err := os.ReadFile(find(name))
	return string(b), err
}

var nowPattern = regexp.MustCompile(`@NOW\+(\d+)@`)

// atNow puts times in: @NOW+60@ is in a minute.
func atNow(text string) string {
	return nowPattern.ReplaceAllStringFunc(text, func(s string) string {
		n, _ := strconv.Atoi(nowPattern.FindStringSubmatch(s)[1])
		return clock.Now().Add(time.Duration(n) * time.Second).Format("2006-01-02T15:04:05")
	})
}

// print prints a text or a capture, if there is one.
func print(name, key string, args []string) error {
	path := find(key+".txt", key+captures.Extension)
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	if filepath.Ext(path) != captures.Extension {
		text, err := os.ReadFile(path)
		if err == nil {
			_, err = os.Stdout.Write(text)
		}
		return err
	}
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	if info.Size() > 1<<20 { // a queue of the benchmarks
		out = bufio.NewWriterSize(&paced{pace: pace[name], began: time.Now()}, 64<<10)
	}
	capture, err := os.Open(path)
	if err != nil {
		return err
	}
	defer capture.Close()
	if err := captures.ReplayText(out, path, asker(name, capture), name, args...); err != nil {
		return err
	}
	return out.Flush()
}

// asker gives the shares of root, who has asked for the recorded answers, to the user who runs the tests.
func asker(name string, capture io.Reader) io.Reader {
	if name != "sshare" {
		return capture
	}
	text, _ := io.ReadAll(capture)
	return strings.NewReader(strings.ReplaceAll(string(text), "|root|", "|"+harness.User()+"|"))
}

// pace is the time that squeue and sprio of Slurm 22.05.8 took for a row on a
// cluster with 8038 and 1790 of them, that of the controller included.
var pace = map[string]time.Duration{"squeue": 5500 * time.Nanosecond, "sprio": 7 * time.Microsecond}

// paced prints rows, none before its time.
type paced struct {
	pace  time.Duration // for a row
	began time.Time
	rows  int
}

func (p *paced) Write(text []byte) (int, error) {
	p.rows += bytes.Count(text, []byte("\n"))
	time.Sleep(time.Until(p.began.Add(time.Duration(p.rows) * p.pace)))
	return os.Stdout.Write(text)
}
