package executor

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
)

// A Spawner waits for all children of its process, so it gets one of its own.
const spawnVar = "TEST_OF_THE_SPAWNER"

func TestMain(m *testing.M) {
	if os.Getenv(spawnVar) != "" {
		fmt.Println(spawnAll())
		return
	}
	os.Exit(m.Run())
}

func TestSpawnerStartsWhatFollows(t *testing.T) {
	r, err := command.System.Run(t.Context(), command.Cmd{
		Name: os.Args[0], Env: append(os.Environ(), spawnVar+"=1"), Timeout: time.Minute,
	})
	if err != nil || string(r.Stdout) != "all as expected\n" {
		t.Errorf("%v: %s%s", err, r.Stdout, r.Stderr)
	}
}

// spawned is what is known of a program.
type spawned struct {
	chain, number int
	started       int // times
	ended         int
	failed        int
}

// spawnAll runs chains of programs, some of which cannot be started and some of
// which leave an orphan behind, and says what went wrong.
func spawnAll() string {
	const chains, length = 6, 120
	if err := AdoptOrphans(); err != nil {
		return err.Error()
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err.Error()
	}
	var mu sync.Mutex
	var wrong string
	complain := func(format string, args ...any) { wrong += fmt.Sprintf(format, args...) + "\n" }
	var all []*spawned
	launch := func(chain, number int) *Launch {
		p := &spawned{chain: chain, number: number}
		all = append(all, p)
		l := &Launch{
			Path: "/bin/sh", Argv: []string{"sh", "-c", "exit " + strconv.Itoa(number)}, Env: os.Environ(), Dir: "/", Tag: p,
			Files: []uintptr{null.Fd(), null.Fd(), null.Fd()},
		}
		switch number % 10 {
		case 3:
			l.Path = "/nowhere/to/be/found"
		case 7:
			l.Argv[2] = "sleep 0.01 & " + l.Argv[2]
		}
		if chain%2 == 1 {
			l.CPUs = []int{0}
		}
		return l
	}
	over := make(chan struct{}, chains)
	follow := func(p *spawned) *Launch {
		if p.number+1 == length {
			over <- struct{}{}
			return nil
		}
		return launch(p.chain, p.number+1)
	}
	s := NewSpawner(2, func(e SpawnEvent) *Launch {
		mu.Lock()
		defer mu.Unlock()
		p := e.Tag.(*spawned)
		switch {
		case e.Err != nil:
			p.failed++
			if !errors.Is(e.Err, syscall.ENOENT) || p.number%10 != 3 {
				complain("program %d of chain %d: %v", p.number, p.chain, e.Err)
			}
			return follow(p)
		case !e.Ended:
			p.started++
			return nil
		}
		p.ended++
		if p.started != 1 || e.PID <= 0 || e.Status.ExitStatus() != p.number {
			complain("program %d of chain %d: started %d times, process %d, status %d", p.number, p.chain, p.started, e.PID, e.Status.ExitStatus())
		}
		return follow(p)
	})
	for i := range chains {
		mu.Lock()
		l := launch(i, 0)
		mu.Unlock()
		s.Start(*l)
	}
	for range chains {
		select {
		case <-over:
		case <-time.After(50 * time.Second):
			return "a chain does not go on"
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(all) != chains*length {
		complain("%d programs, want %d", len(all), chains*length)
	}
	for _, p := range all {
		if p.ended+p.failed != 1 || (p.number%10 == 3) != (p.failed == 1) {
			complain("program %d of chain %d: started %d times, ended %d, failed %d", p.number, p.chain, p.started, p.ended, p.failed)
		}
	}
	if wrong == "" {
		return "all as expected"
	}
	return wrong
}
