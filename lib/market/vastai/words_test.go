package vastai

import "testing"

// What a row says of its container, by the words of the market.
func TestStage(t *testing.T) {
	for _, c := range []struct {
		actual, intended, message string
		want                      Stage
		why                       string
		begun                     bool
	}{
		{"", "running", "", Loads, "", false},
		{"created", "running", "", Loads, "", false},
		{"loading", "running", "Pulling fs layer", Loads, "", false},
		{"loading", "running", "manifest unknown", BadImage, "the image cannot be pulled: manifest unknown", false},
		{"loading", "running", "No space left on device", BadMachine, "the machine cannot run the image: No space left on device", false},
		{
			"created", "running", `exec: "/bin/sh": stat /bin/sh: no such file`, BadImage,
			`the image has no /bin/sh to run the task's command: exec: "/bin/sh": stat /bin/sh: no such file`, false,
		},
		{"running", "running", "manifest unknown", Runs, "", true},
		{"running", "stopped", "", Exited, "", true},
		{"exited", "running", "", Exited, "", true},
		{"stopped", "running", "", Stopped, "", true},
		{"frozen", "frozen", "", Stopped, "", true},
		{"loading", "stopped", "", Stops, "", false},
		{"rebooting", "running", "", Restarts, "", true},
		{"offline", "running", "", Falters, "offline", true},
		{"of a new kind", "running", "", Falters, "of a new kind", true},
	} {
		i := Instance{Actual: c.actual, Intended: c.intended, Message: c.message}
		if got, why := i.Stage(); got != c.want || why != c.why || got.Begun() != c.begun {
			t.Errorf("%+v: %d, %q, %v", c, got, why, got.Begun())
		}
	}
}
