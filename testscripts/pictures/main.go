package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	bin := flag.String("bin", "bin", "the tools are in `DIR`")
	out := flag.String("out", "man/pictures", "write the pictures to `DIR`")
	flag.Parse()
	if err := draw(*bin, *out, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "pictures: %v\n", err)
		os.Exit(1)
	}
}

// draw plays the scenes, or those that are named, and writes their pictures.
func draw(bin, out string, names []string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, s := range scenes {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		frames, err := play(s, bin)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if err := os.WriteFile(filepath.Join(out, s.name+".svg"), []byte(svg(s, frames)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// play plays one scene and returns what was seen.
func play(s scene, bin string) (frames []frame, err error) {
	home, remove, err := stage(s, bin)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	// The tools are copied, as alice may not come to where they were built.
	env := []string{
		"HOME=" + home, "USER=alice", "LOGNAME=alice", "SHELL=/bin/bash", "PATH=" + filepath.Join(home, ".bin") + ":/usr/local/bin:/usr/bin:/bin",
		"LANG=C.UTF-8", "TZ=UTC", "PS1=$ ", "HISTFILE=", "PONOS_CONFIG=" + filepath.Join(home, "ponos", "ponos.yaml"),
	}
	if s.slurm {
		if os.Getenv("SLURM_CONF") == "" {
			return nil, errors.New("it needs a Slurm: eval \"$(testscripts/cluster/up)\"")
		}
		env = append(env, "SLURM_CONF="+os.Getenv("SLURM_CONF"))
	}
	defer func() { err = errors.Join(err, shell(s, home, env, s.after)) }()
	if err := shell(s, home, env, s.before); err != nil {
		return nil, err
	}
	t, err := open(s, home, env)
	if err != nil {
		return nil, err
	}
	defer t.close()
	for _, step := range s.steps {
		if err := t.do(step); err != nil {
			return nil, err
		}
	}
	return t.frames, nil
}

// code is the directory that commands run in: a home directory is not code of tasks.
func code(home string) string { return filepath.Join(home, "code") }

// stage makes a home directory with the tools in it.
func stage(s scene, bin string) (home string, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "ponos-pictures")
	if err != nil {
		return "", nil, err
	}
	home = filepath.Join(dir, "alice")
	remove = func() error { return os.RemoveAll(dir) }
	steps := [][]string{{"chmod", "755", dir}, {"mkdir", "-p", filepath.Join(home, ".bin"), code(home)}}
	for _, tool := range s.tools {
		steps = append(steps, []string{"cp", filepath.Join(bin, tool), filepath.Join(home, ".bin")})
	}
	if s.slurm {
		steps = append(steps, []string{"chown", "-R", "alice", home})
	}
	for _, argv := range steps {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return "", nil, errors.Join(fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out), remove())
		}
	}
	return home, remove, nil
}

// asAlice is a command line that is run by alice, where there is one.
func asAlice(s scene, env []string, argv ...string) []string {
	words := append(append([]string{"env", "-i"}, env...), argv...)
	if s.slurm {
		words = append([]string{"/sbin/runuser", "-u", "alice", "--"}, words...)
	}
	return words
}

// shell runs what is not seen. Lines that begin with a name and a colon are run by
// that user.
func shell(s scene, home string, env []string, lines []string) error {
	for _, line := range lines {
		argv := asAlice(s, env, "bash", "-c", line)
		if user, rest, ok := strings.Cut(line, ": "); ok && !strings.Contains(user, " ") {
			argv = append([]string{"env", "-i"}, append(env, "/sbin/runuser", "-u", user, "--", "bash", "-c", rest)...)
		}
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Dir = code(home)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", line, err, out)
		}
	}
	return nil
}
