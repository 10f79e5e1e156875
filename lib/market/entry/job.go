package entry

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Variables of an instance: which attempt it is for, where the loader finds the program, and what its sums are. The job
// itself is in the variables that begin with JobEnv: a variable of the market has room for little.
const (
	NonceEnv = "PONOS_NONCE"
	URLEnv   = "PONOS_ENTRY"
	SumsEnv  = "PONOS_ENTRY_SUMS"
	JobEnv   = "PONOS_JOB_"
	// LabelEnv and GraceEnv are those of the job, for the loader, and for the agent, which sees them in lists.
	LabelEnv = "PONOS_LABEL"
	GraceEnv = "PONOS_GRACE"
)

// part is how long a part of the job is. The market documents 256 bytes for a variable.
const part = 240

// CheckpointsEnv is where the task has its checkpoints.
const CheckpointsEnv = "PONOS_CHECKPOINT_DIR"

// Job is what the program is to do in a container.
type Job struct {
	Command []string          `json:"command"`
	Env     map[string]string `json:"env,omitempty"` // of the task, beside that of the container
	Label   string            `json:"label"`         // of its instance
	Runtime time.Duration     `json:"runtime"`       // for which the command may run
	// Patience is how long the market is asked whether the instance is still wanted.
	Patience time.Duration `json:"patience"`
	// Grace is how long the agent may stay away after the end, until the program destroys the instance.
	Grace time.Duration `json:"grace"`
	Stop  bool          `json:"stop,omitempty"` // it is stopped meanwhile
	// Load and Save are commands of a shell that copy checkpoints from a store, and to it at these intervals.
	Load     string        `json:"load,omitempty"`
	Save     string        `json:"save,omitempty"`
	Interval time.Duration `json:"interval,omitempty"`
	Machine  Machine       `json:"machine"`
}

// Pack returns the variables that carry a job.
func (j Job) Pack() (map[string]string, error) {
	b, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	text := base64.RawURLEncoding.EncodeToString(packed.Bytes())
	env := map[string]string{}
	for n := 0; text != ""; n++ {
		k := min(part, len(text))
		env[fmt.Sprint(JobEnv, n)], text = text[:k], text[k:]
	}
	return env, nil
}

// maxJob is the size of a job as JSON: more than the market could carry.
const maxJob = 16 << 20

// Unpack returns the job of a container, or of an instance, by its variables.
func Unpack(getenv func(string) string) (j Job, err error) {
	var text strings.Builder
	for n := 0; ; n++ {
		v := getenv(fmt.Sprint(JobEnv, n))
		if v == "" {
			break
		}
		text.WriteString(v)
	}
	packed, err := base64.RawURLEncoding.DecodeString(text.String())
	if err != nil {
		return j, err
	}
	b, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), maxJob))
	if err != nil {
		return j, err
	}
	return j, json.Unmarshal(b, &j)
}

// IsOurs reports whether a variable is for the program, and not for the task.
func IsOurs(name string) bool {
	return name == NonceEnv || name == URLEnv || name == SumsEnv || name == GraceEnv || name == LabelEnv || strings.HasPrefix(name, JobEnv)
}
