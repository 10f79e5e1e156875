package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

// frame is the terminal at a moment: its lines with the escape sequences of colours.
type frame struct {
	at    time.Duration
	lines []string
}

// terminal is a tmux of its own with one window.
type terminal struct {
	socket string
	began  time.Time
	frames []frame
}

// patience limits a step, on a machine that is busy.
const patience = 10 * time.Minute

func open(s scene, home string, env []string) (*terminal, error) {
	t := &terminal{socket: fmt.Sprintf("ponos-pictures-%d-%s", os.Getpid(), s.name)}
	args := []string{
		"-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(s.columns), "-y", fmt.Sprint(s.rows), "-c", code(home),
	}
	args = append(args, asAlice(s, append(env, "TERM=tmux-256color"), "bash", "--norc", "--noprofile")...)
	args = append(args, ";", "set-option", "-g", "status", "off")
	if err := t.tmux(args...); err != nil {
		return nil, err
	}
	t.began = time.Now()
	return t, t.until(prompt)
}

func (t *terminal) tmux(args ...string) error {
	cmd := exec.Command("tmux", append([]string{"-L", t.socket}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("tmux %s: %w\n%s", args[0], err, out)
	}
	return nil
}

func (t *terminal) close() { _ = t.tmux("kill-server") }

// capture takes down what stands there, if it is not what stood there before.
func (t *terminal) capture() (string, error) {
	out, err := exec.Command("tmux", "-L", t.socket, "capture-pane", "-e", "-p").Output()
	if err != nil {
		return "", fmt.Errorf("tmux capture-pane: %w", err)
	}
	text := strings.TrimRight(string(out), "\n ")
	if n := len(t.frames); n == 0 || strings.Join(t.frames[n-1].lines, "\n") != text {
		t.frames = append(t.frames, frame{time.Since(t.began), strings.Split(text, "\n")})
	}
	return text, nil
}

// prompt is the last line when the shell waits.
var prompt = regexp.MustCompile(`(?:^|\n)\$$`)

var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// until watches until the screen is as it is to be.
func (t *terminal) until(want *regexp.Regexp) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(80 * time.Millisecond) {
		text, err := t.capture()
		if err != nil {
			return err
		}
		text = strings.TrimRight(colours.ReplaceAllString(text, ""), " ")
		if want.MatchString(text) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the terminal does not get to %q:\n%s", want, text)
		}
	}
}

// do types a command, sends it, and waits for its end.
func (t *terminal) do(s step) error {
	if err := t.tmux("send-keys", "-l", s.command); err != nil {
		return err
	}
	lines := strings.Split(s.command, "\n")
	if err := t.until(regexp.MustCompile(regexp.QuoteMeta(tail(lines[len(lines)-1])) + "$")); err != nil {
		return err
	}
	if err := t.tmux("send-keys", "Enter"); err != nil {
		return err
	}
	if s.until != "" {
		if err := t.until(regexp.MustCompile(s.until)); err != nil {
			return err
		}
		if err := t.tmux("send-keys", "C-c"); err != nil {
			return err
		}
	}
	return t.until(prompt)
}

// tail is the end of a command that stands in one line whatever the width.
func tail(command string) string { return command[max(0, len(command)-8):] }
