package proc

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

// A process that becomes another program again and again is found each time.
func TestProcessThatBecomesAnotherProgram(t *testing.T) {
	const again = `exec /bin/sh -c "$0" "$0"`
	c := exec.Command("/bin/sh", "-c", again, again)
	c.Env = append(os.Environ(), "PROC_TEST=found", "PROC_TEST_NAME="+t.Name())
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	missed := 0
	for range 100 {
		if !slices.Contains(WithVariables("PROC_TEST=found", "PROC_TEST_NAME="+t.Name()), c.Process.Pid) {
			missed++
		}
	}
	if missed > 0 {
		t.Errorf("it was missed %d times of 100", missed)
	}
}
