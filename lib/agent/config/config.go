package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	homedir "github.com/mitchellh/go-homedir"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// Config is the configuration of an agent. Keys of the official agent keep its names, defaults and
// meaning.
type Config struct {
	Path string `yaml:"-"` // the file it was read from
	// Warnings are about the file, not its contents: which users can read it.
	Warnings []string `yaml:"-"`

	URL     string `yaml:"url"`     // root URL of the Arkindex instance
	FarmID  string `yaml:"farm_id"` // UUID of the farm
	Seed    string `yaml:"seed"`    // secret of the farm
	Queue   string `yaml:"queue"`   // arkindex, or spool:DIR
	Mode    string `yaml:"mode"`    // slurm, vast or local
	DataDir string `yaml:"data_dir"`
	PIDFile string `yaml:"pid_file"`

	Logging     Logging     `yaml:"logging"`
	Sentry      Sentry      `yaml:"sentry"`
	Arkindex    Arkindex    `yaml:"arkindex"`
	Slurm       Slurm       `yaml:"slurm"`
	Local       Local       `yaml:"local"`
	Vast        Vast        `yaml:"vast_api"`
	Environment Environment `yaml:"environments"`
	Prepare     Prepare     `yaml:"prepare"`
	Retention   Duration    `yaml:"retention"`
	// Retry holds the retry rules of tasks that have none of their own: see lib/task/need.
	Retry string `yaml:"retry"`
	// Requests are the needs of tasks whose queue does not specify any, by patterns of their slugs.
	Requests Requests `yaml:"requests"`
	// SpoolRetention is how long ended tasks stay in the spool; 0: for ever.
	SpoolRetention Duration `yaml:"spool_retention"`
	Keep           Keep     `yaml:"keep"`
	MaxTaskLog     string   `yaml:"max_task_log"` // of the output of a command; "": no limit
	OnEnd          string   `yaml:"on_end"`       // command for groups of ponos-submit

	seen  map[string]bool // top-level keys of the file
	lines map[string]int  // of all keys
}

// Where returns the place of a key in the file, or of its section: the path, and the line if it is
// known.
func (c *Config) Where(key string) string {
	for ; key != ""; key = key[:max(0, strings.LastIndexByte(key, '.'))] {
		if line := c.lines[key]; line > 0 {
			return fmt.Sprintf("%s:%d", c.Path, line)
		}
	}
	return c.Path
}

// Keep configures what is kept of what tasks write to their working directories.
type Keep struct {
	MaxSize string `yaml:"max_size"` // of a task; 0: nothing is kept
}

// KeepSize returns how much is kept of what a task writes to its working directory, in bytes. Where tasks publish what they
// are to keep, nothing is, unless the file says how much.
func (c *Config) KeepSize(publish bool) int64 {
	if publish && !c.seen["keep"] {
		return 0
	}
	size, _ := unit.Size(c.Keep.MaxSize) // it was checked
	return size
}

// MaxLog returns how much of the output of a command is written, in bytes; 0: all.
func (c *Config) MaxLog() int64 {
	size, _ := unit.Size(c.MaxTaskLog) // it was checked
	return size
}

// Logging configures the agent's own log.
type Logging struct {
	Level      string `yaml:"level"`       // NOTSET DEBUG INFO WARNING ERROR CRITICAL
	Path       string `yaml:"path"`        // file; empty: no log of the agent
	TaskFormat string `yaml:"task_format"` // of the agent's lines in a task's log
}

// Sentry configures the reporting of errors.
type Sentry struct {
	DSN         string `yaml:"dsn"`
	Environment string `yaml:"environment"`
}

// Arkindex holds settings that differ between instances.
type Arkindex struct {
	AuthScheme     string `yaml:"auth_scheme"`
	LogContentType string `yaml:"log_content_type"`
}

// Slurm holds options of sbatch for the agent's own job and for tasks.
type Slurm struct {
	Base   sbatch.Options `yaml:"base"`
	Daemon sbatch.Options `yaml:"daemon"`
	CPU    sbatch.Options `yaml:"cpu"`
	GPU    sbatch.Options `yaml:"gpu"`
	Limits Limits         `yaml:"limits"`
	// Learn is the risk with which tasks without a time limit or memory get those that runs of their
	// name needed; "": they do not.
	Learn      string   `yaml:"learn"`
	Arrays     bool     `yaml:"arrays"`      // similar tasks are submitted together
	ConfigFlag string   `yaml:"config_flag"` // given to the worker of a task without network, before its configuration file
	StopWait   Duration `yaml:"stop_wait"`   // how long ponos-stop waits for the end of a job
	Pack       Pack     `yaml:"pack"`
}

// Pack configures how "ponos-start --pack" runs short tasks in pilot jobs.
type Pack struct {
	Limit  Duration `yaml:"limit"`  // the longest time limit of a short task
	Jobs   int      `yaml:"jobs"`   // pilot jobs with equal options at once
	CPUs   int      `yaml:"cpus"`   // of a pilot job
	GPUs   int      `yaml:"gpus"`   // of a pilot job, if its tasks request GPUs
	Time   Duration `yaml:"time"`   // limit of a pilot job
	Linger Duration `yaml:"linger"` // how long a pilot job waits for tasks
}

// Limits are the limits of the jobs of all tasks. What is not set is not limited.
type Limits struct {
	Time       Duration `yaml:"time"`
	GPUs       int      `yaml:"gpus"` // of a job
	Partitions Names    `yaml:"partitions"`
	Accounts   Names    `yaml:"accounts"`
}

// Names are words: in the file a list, or a single one.
type Names []string

// Local configures how tasks run on this machine.
type Local struct {
	MaxJobs int `yaml:"max_jobs"` // at the same time; 0: one for each two CPUs
	// What tasks with a request may take together; 0 or "": what the machine has.
	CPUs     int      `yaml:"cpus"`
	Memory   string   `yaml:"memory"`
	GPUs     int      `yaml:"gpus"`
	StopWait Duration `yaml:"stop_wait"`
}

// Environment configures how a task's code is installed.
type Environment struct {
	Python   string   `yaml:"python"`    // interpreter that creates virtual environments
	PIPFlags string   `yaml:"pip_flags"` // PIP_FLAGS for the installation
	Default  string   `yaml:"default"`   // active: what is active at submission; "" or own: what is made
	Timeout  Duration `yaml:"timeout"`   // of cloning and of installing, each
	Keep     Duration `yaml:"keep"`      // how long an unused environment is kept
}

// Prepare configures how long tasks wait for their code.
type Prepare struct {
	GiveUp Duration `yaml:"give_up"` // 0: the first failure ends the task
}

// DefaultTaskFormat is the format of the agent's lines in a task's log.
const DefaultTaskFormat = "[agent %(levelname)s %(asctime)s] %(message)s"

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		DataDir:  "/usr/share/ponos/data",
		PIDFile:  defaultPIDFile(),
		Logging:  Logging{Level: "INFO", TaskFormat: DefaultTaskFormat},
		Sentry:   Sentry{Environment: "production"},
		Arkindex: Arkindex{AuthScheme: "Bearer", LogContentType: "text/plain; charset=utf-8"},
		Slurm: Slurm{
			ConfigFlag: "--config", StopWait: Duration(time.Minute),
			Pack: Pack{Duration(10 * time.Minute), 4, 4, 1, Duration(time.Hour), Duration(time.Minute)},
		},
		Local:     Local{StopWait: Duration(30 * time.Second)},
		Vast:      defaultVast(),
		Retention: Duration(30 * 24 * time.Hour),
		Keep:      Keep{MaxSize: "10GiB"},
		Environment: Environment{
			Python: "python3", Timeout: Duration(time.Hour), Keep: Duration(30 * 24 * time.Hour),
		},
		Prepare: Prepare{GiveUp: Duration(24 * time.Hour)},
	}
}

// defaultPIDFile returns a path of the user. A runtime directory would not do: cron does not have
// one.
func defaultPIDFile() string { return filepath.Join(place.UserStateDir(), "ponos.pid") }

// PlacesDir returns where the user's tools remember the identities of directories.
func PlacesDir() string { return filepath.Join(place.UserStateDir(), "places") }

// Find returns the path of the configuration: the flag's, else $PONOS_CONFIG, else
// the first that exists of ~/.config/ponos/ponos.yaml and /etc/ponos/ponos.yaml.
func Find(flag string) (string, error) {
	if flag != "" {
		return Expand(flag)
	}
	if env := os.Getenv("PONOS_CONFIG"); env != "" {
		return Expand(env)
	}
	candidates := []string{"/etc/ponos/ponos.yaml"}
	if home, err := homedir.Dir(); err == nil {
		candidates = append([]string{filepath.Join(home, ".config/ponos/ponos.yaml")}, candidates...)
	}
	for _, path := range candidates {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fault.Hint(
		fault.Errorf(fault.Usage, "no configuration: PONOS_CONFIG is not set, and there is no %s", strings.Join(candidates, " and no ")),
		`create one with "ponos-setup --init DIR", or by the first "ponos run", or name one with --config FILE`)
}

// Expand replaces a leading ~ and environment variables in a path.
func Expand(path string) (string, error) {
	expanded, err := homedir.Expand(os.ExpandEnv(path))
	if err != nil {
		return "", fault.Errorf(fault.Usage, "%q: %w", path, err)
	}
	return expanded, nil
}

// Load finds, reads and checks a configuration of these kinds. Its error is of kind fault.Usage
// and holds every problem of the file.
func Load(flag string, kinds Kinds) (Config, error) {
	path, err := Find(flag)
	if err != nil {
		return Config{}, err
	}
	f, err := place.Open(path, os.O_RDONLY, 0)
	if fault.Is(err, fault.Usage) {
		return Config{}, fault.Errorf(fault.Usage, "configuration: %w", err)
	}
	if err != nil {
		hint := `create one with "ponos-setup --init DIR"`
		if errors.Is(err, fs.ErrPermission) {
			hint = "run the tool as the user of the agent, or name another configuration with --config FILE"
		}
		return Config{}, fault.Hint(fault.Errorf(fault.Usage, "reading the configuration: %w", err), hint)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return Config{}, fault.Hint(
			fault.Errorf(fault.Usage, "configuration: %q is a directory", path),
			"name a file, such as "+filepath.Join(path, "ponos.yaml"))
	}
	c, err := Parse(f, path, kinds)
	if err != nil {
		return Config{}, err
	}
	c.warn(path, f.Stat, c.Seed != "" || c.Sentry.DSN != "" || c.Vast.APIKey != "" || c.Vast.ImageLogin != "" || len(c.Vast.ExtraEnv) > 0)
	if key := c.Vast.APIKeyFile; key != "" {
		if err := place.File(key, os.Geteuid()); err != nil {
			return Config{}, fault.Errorf(fault.Usage, "%s: vast_api.api_key_file: %w", c.Where("vast_api.api_key_file"), err)
		}
		c.warn(key, func() (fs.FileInfo, error) { return os.Stat(key) }, true) // a missing one is told where the key is needed
	}
	return c, c.checkWriters(looker)
}

// looker is to whom a place is to belong for those that only look: root may look at what belongs to another user.
func looker(path string) int {
	if info, err := os.Stat(path); err == nil && (os.Geteuid() == 0 || place.Mine(info)) {
		return place.Owner(info)
	}
	return user(path)
}

// user is to whom a place is to belong for those that write: to this user, unless the file system maps owners.
func user(path string) int {
	if info, err := os.Stat(path); err == nil && info.IsDir() && !place.Mine(info) {
		return place.NewFiles(path)
	}
	return os.Geteuid()
}

// checkWriters returns an error of kind fault.Usage if the data directory, the state directory or the PID file belongs to another user
// than it is to, or others can write to it.
func (c *Config) checkWriters(owner func(path string) int) error {
	for _, dir := range []string{c.DataDir, c.StateDir()} {
		if err := place.Dir(dir, owner(dir)); fault.Is(err, fault.Usage) {
			return fault.Errorf(fault.Usage, "data_dir: %w", err)
		}
	}
	if err := place.File(c.PIDFile, owner(c.PIDFile)); err != nil {
		return fault.Errorf(fault.Usage, "pid_file: %w", err)
	}
	return nil
}

// warn adds a warning if other users can read a file with a secret.
func (c *Config) warn(path string, stat func() (fs.FileInfo, error), secret bool) {
	info, err := stat()
	if err == nil && secret && info.Mode()&0o077 != 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf(
			"%s: others may read it (mode %04o), and it holds a secret; chmod 600 it", path, info.Mode().Perm()))
	}
}

// StateDir returns the directory of the agent's state: a cache of what the queue and the runner know,
// and what was already reported.
func (c *Config) StateDir() string { return filepath.Join(c.DataDir, "state") }

// TaskDirs returns the directories to which a task of a spool writes as long as it runs under an agent with a data_dir: its working
// directory, and that of its artifacts.
func TaskDirs(dataDir, id string) []string {
	c := Config{DataDir: dataDir}
	return []string{filepath.Join(c.StateDir(), "tasks", id, "work"), filepath.Join(c.ArtifactsDir(), "none", id)}
}

// ArtifactsDir returns the directory of the artifacts of the tasks of a process.
func (c *Config) ArtifactsDir() string { return filepath.Join(c.DataDir, "data") }

// SpoolDir returns the directory of a spool queue, or "" for another queue.
func (c Config) SpoolDir() string {
	if dir, ok := strings.CutPrefix(c.Queue, "spool:"); ok {
		return dir
	}
	return ""
}

// CheckWriters returns an error of kind fault.Usage if what the agent writes to belongs to another user, or others can write to it.
func (c *Config) CheckWriters() error { return c.checkWriters(user) }

const ownDataDir = "run the tool as the user of the agent, or set another data_dir in "

// CheckDataDir reports whether tools can use the data directory, and nobody else can; it creates nothing.
func (c *Config) CheckDataDir() error {
	if err := c.CheckWriters(); err != nil {
		return err
	}
	for dir := c.DataDir; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		switch {
		case err == nil && !info.IsDir():
			return fault.Errorf(fault.Usage, "data_dir %q: %q is not a directory", c.DataDir, dir)
		case err == nil:
			err = writable(dir)
			if errors.Is(err, syscall.EROFS) { // which another user could not write to either
				return fault.Errorf(fault.Usage, "data_dir %q: %q is not writable: %w", c.DataDir, dir, err)
			}
			if err != nil {
				return fault.Hint(fault.Errorf(fault.Usage, "data_dir %q: %q is not writable", c.DataDir, dir), ownDataDir+c.Path)
			}
			return nil
		case !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir):
			err = fault.Errorf(fault.Usage, "data_dir %q: %w", c.DataDir, err)
			if errors.Is(err, fs.ErrPermission) {
				err = fault.Hint(err, ownDataDir+c.Path)
			}
			return err
		}
	}
}
