package fairshare

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/clock"
)

// answer is what stands in for Slurm's commands. It logs what it was asked to
// $ASKED and answers with the file NAME.txt of $ANSWERS or else of $RECORDED; for
// scontrol NAME is what is to be shown. NAME.err goes to stderr, and the number in
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
		for _, arg := range args {
			if strings.HasPrefix(arg, "--state=") {
				key = "sacct-ended" // of which none is recorded
			}
		}
	case "sbatch":
		for _, arg := range args {
			if p, ok := strings.CutPrefix(arg, "--partition="); ok {
				key = "sbatch-" + p
			}
		}
	}
	if text, err := find(key + ".err"); err == nil {
		fmt.Fprint(os.Stderr, atNow(text))
	}
	if file := filepath.Join(os.Getenv("RECORDED"), name+".txt"); os.Getenv("ANSWERS") == "" && isLong(file) {
		return long(file, name, args)
	}
	if text, err := find(key + ".txt"); err == nil {
		print(name, text, args)
	}
	if text, err := find(key + ".exit"); err == nil {
		code, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return 99
		}
		return code
	}
	return 0
}

func find(file string) (string, error) {
	for _, dir := range []string{os.Getenv("ANSWERS"), os.Getenv("RECORDED"), os.Getenv("COMMON")} {
		if b, err := os.ReadFile(filepath.Join(dir, file)); err == nil && dir != "" {
			return string(b), nil
		}
	}
	return "", os.ErrNotExist
}

var nowPattern = regexp.MustCompile(`@NOW\+(\d+)@`)

// atNow puts times in: @NOW+60@ is in a minute.
func atNow(text string) string {
	return nowPattern.ReplaceAllStringFunc(text, func(s string) string {
		n, _ := strconv.Atoi(nowPattern.FindStringSubmatch(s)[1])
		return clock.Now().Add(time.Duration(n) * time.Second).Format("2006-01-02T15:04:05")
	})
}

var markPattern = regexp.MustCompile(`~([0-9a-f]+)$`)

// print writes an answer. squeue ends its rows with the mark it was given, and
// heeds --states.
func print(name, text string, args []string) {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	if name != "squeue" {
		out.WriteString(text)
		return
	}
	states := ""
	for _, arg := range args {
		if m := markPattern.FindStringSubmatch(arg); m != nil && strings.HasPrefix(arg, "--Format=") {
			text = strings.ReplaceAll(text, "0123456789abcdef", m[1])
		}
		if s, ok := strings.CutPrefix(arg, "--states="); ok {
			states = s
		}
	}
	keep := true
	for line := range strings.Lines(text) {
		if f := strings.Split(line, "|"); len(f) > 20 && states != "" {
			keep = strings.Contains(","+states+",", ","+f[10]+",")
		}
		if keep {
			out.WriteString(line)
		}
	}
}

// isLong reports whether a queue is too long to be held in memory twice.
func isLong(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Size() > 1<<20
}

// pace is the time that squeue and sprio of Slurm 22.05.8 took for a row on a
// cluster with 8038 and 1790 of them, that of the controller included.
var pace = map[string]time.Duration{"squeue": 5500 * time.Nanosecond, "sprio": 7 * time.Microsecond}

// long answers row by row, at the pace of the real command.
func long(file, name string, args []string) int {
	mark := ""
	for _, arg := range args {
		if m := markPattern.FindStringSubmatch(arg); m != nil {
			mark = m[1]
		}
	}
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	if err := streamRows(file, mark, pace[name], out); err != nil || out.Flush() != nil {
		return 98
	}
	return 0
}
