package config

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/task"
)

// Vast configures how tasks run on rented machines. Amounts are in dollars, sizes in GB.
type Vast struct {
	APIKey       string            `yaml:"api_key"`
	APIKeyFile   string            `yaml:"api_key_file"`
	Via          string            `yaml:"via"` // api or cli; "": api with a key, else cli
	URL          string            `yaml:"url"`
	Agent        string            `yaml:"agent"` // its name in labels; "": derived from host, user and data_dir
	OfferFilters OfferFilters      `yaml:"offer_filters"`
	Disk         float64           `yaml:"disk"`
	ImageLogin   string            `yaml:"image_login"`
	ExtraEnv     map[string]string `yaml:"extra_env"`
	Commands     map[string]string `yaml:"commands"`     // pattern of a task's slug: command of its image
	ImageLookup  bool              `yaml:"image_lookup"` // ask the registry what an image runs by itself

	// Where containers fetch vast-entry, and what that does at the end of a task.
	EntryURL   string   `yaml:"entry_url"`
	EntrySums  string   `yaml:"entry_sha256"`
	EntryGrace Duration `yaml:"entry_grace"`
	EntryEnd   string   `yaml:"entry_end"`

	ExpectedTime Duration `yaml:"expected_time"` // of a task; offers are ranked by its cost
	Download     float64  `yaml:"download"`      // of a task: image and models
	Upload       float64  `yaml:"upload"`

	// Find is what tasks need, in the request language, by patterns of their slugs. In the file, it
	// may be a single request, for all of them.
	Find Requests `yaml:"find"`

	Bid           float64 `yaml:"bid"`             // dollars an hour, for interruptible machines
	Spot          bool    `yaml:"spot"`            // a little more than the minimum bid
	RetriesOnLoss int     `yaml:"retries_on_loss"` // how often a task is started again after that
	Checkpoints   string  `yaml:"checkpoint_store"`
	// Commands in the container that copy a task's directory from the store and to it.
	CheckpointLoad     string   `yaml:"checkpoint_load"`
	CheckpointSave     string   `yaml:"checkpoint_save"`
	CheckpointInterval Duration `yaml:"checkpoint_interval"`

	MaxPricePerHour   float64  `yaml:"max_price_per_hour"` // 0: no limit, as below
	MaxCostPerTask    float64  `yaml:"max_cost_per_task"`
	MaxCostPerDay     float64  `yaml:"max_cost_per_day"` // of all tasks
	MaxInstances      int      `yaml:"max_instances"`
	MaxCreatesPerHour int      `yaml:"max_creates_per_hour"`
	MinCredit         float64  `yaml:"min_credit"`
	BootTimeout       Duration `yaml:"boot_timeout"`
	MaxRuntime        Duration `yaml:"max_runtime"`

	ShunTime       Duration `yaml:"shun_time"`       // how long a machine is avoided after a fault
	CreateInterval Duration `yaml:"create_interval"` // between two orders, and first wait of a repeated request
	Settle         Duration `yaml:"settle"`          // how long a new instance may be missing from lists
	LogInterval    Duration `yaml:"log_interval"`
	StopWait       Duration `yaml:"stop_wait"`
	BillInterval   Duration `yaml:"bill_interval"` // how often the market is asked what it has billed; 0: never
}

// Requests are resource requests by patterns of slugs.
type Requests map[string]string

func (d *decoder) requests(node *yaml.Node, target *Requests, key string) {
	if node.Kind == yaml.ScalarNode {
		*target = Requests{"*": node.Value}
		return
	}
	var m map[string]string
	d.texts(node, &m, key)
	*target = m
}

// OfferFilters are filters in one of the two forms of the file: a query of the CLI, or a map as in
// the API.
type OfferFilters struct {
	Query string
	Map   map[string]any
}

// alphanumeric are the letters and digits of names.
const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

func defaultVast() Vast {
	return Vast{
		Disk: 40, ImageLookup: true, EntryGrace: Duration(30 * time.Minute), EntryEnd: "destroy",
		ExpectedTime: Duration(time.Hour), Download: 10, Upload: 1,
		MaxPricePerHour: 1, MaxCostPerTask: 20, MaxInstances: 4, MaxCreatesPerHour: 30, MinCredit: 1,
		BootTimeout: Duration(20 * time.Minute), MaxRuntime: Duration(24 * time.Hour),
		ShunTime: Duration(6 * time.Hour), CreateInterval: Duration(5 * time.Second), Settle: Duration(time.Minute),
		LogInterval: Duration(30 * time.Second), StopWait: Duration(30 * time.Second), BillInterval: Duration(time.Hour),
		CheckpointInterval: Duration(10 * time.Minute),
	}
}

func (d *decoder) filters(node *yaml.Node, target *OfferFilters, key string) {
	switch node.Kind {
	case yaml.ScalarNode:
		target.Query = node.Value
	case yaml.MappingNode:
		if err := node.Decode(&target.Map); err != nil {
			d.at(node.Line, key, "%v", err)
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			d.lines[key+"."+node.Content[i].Value] = node.Content[i].Line
		}
	default:
		d.at(node.Line, key, "expected a query such as \"gpu_ram>=24 reliability>0.98\", or a mapping of fields to comparisons")
	}
}

func (d *decoder) texts(node *yaml.Node, target *map[string]string, key string) {
	if node.Kind != yaml.MappingNode {
		d.at(node.Line, key, "expected a mapping of names to values")
		return
	}
	*target = map[string]string{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		k, v := node.Content[i], node.Content[i+1]
		if v.Kind != yaml.ScalarNode {
			d.at(v.Line, key+"."+k.Value, "expected a plain value")
			continue
		}
		(*target)[k.Value] = v.Value
	}
}

func (c *Config) finishVast(problem func(key, format string, args ...any), file func(key string, p *string)) {
	v := &c.Vast
	file("vast_api.api_key_file", &v.APIKeyFile)
	if v.APIKey != "" && v.APIKeyFile != "" {
		problem("vast_api.api_key_file", "api_key is set as well; set only one of them")
	}
	switch v.Via {
	case "":
		if v.Via = "cli"; v.APIKey != "" || v.APIKeyFile != "" {
			v.Via = "api"
		}
	case "api":
		if v.APIKey == "" && v.APIKeyFile == "" && c.Mode == "vast" {
			problem("vast_api.via", "\"api\" needs api_key or api_key_file")
		}
	case "cli":
	default:
		problem("vast_api.via", "%q is neither \"api\" nor \"cli\"", v.Via)
	}
	if strings.ContainsFunc(v.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }) {
		problem("vast_api.api_key", "it has a blank, a line break or another character that no key has")
	}
	if v.URL != "" {
		u, err := url.Parse(v.URL)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" &&
			(u.Scheme != "http" || !slices.Contains([]string{"127.0.0.1", "localhost", "::1"}, u.Hostname())) {
			problem("vast_api.url", "not an https URL: the key must not be sent unencrypted")
		}
	}
	if v.EntryURL != "" {
		u, err := url.Parse(v.EntryURL)
		if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" ||
			len(v.EntryURL) > 200 || strings.ContainsAny(v.EntryURL, " \t\r\n\"'\\") {
			problem("vast_api.entry_url", "expected an http or https URL of at most 200 bytes, without a password")
		}
	}
	if (v.EntryURL == "") != (v.EntrySums == "") {
		problem("vast_api.entry_sha256", "entry_url and entry_sha256 go together")
	}
	v.EntrySums = strings.Join(strings.Fields(v.EntrySums), " ")
	for sum := range strings.FieldsSeq(v.EntrySums) {
		if len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "" {
			problem("vast_api.entry_sha256", "expected 64 hexadecimal digits in lower case for each architecture, as sha256sum prints them")
		}
	}
	if v.EntryGrace < Duration(time.Second) {
		problem("vast_api.entry_grace", "expected at least 1s")
	}
	if v.EntryEnd != "stop" && v.EntryEnd != "destroy" {
		problem("vast_api.entry_end", "%q is neither \"stop\" nor \"destroy\"", v.EntryEnd)
	}
	if v.Agent != "" && (len(v.Agent) > 32 || strings.Trim(v.Agent, alphanumeric+"-_") != "") {
		problem("vast_api.agent", "invalid name %q: expected at most 32 letters, digits, '-' and '_'", v.Agent)
	}
	for key, n := range map[string]float64{
		"download": v.Download, "upload": v.Upload, "max_price_per_hour": v.MaxPricePerHour, "max_cost_per_task": v.MaxCostPerTask,
		"max_cost_per_day": v.MaxCostPerDay,
		"bid":              v.Bid, "retries_on_loss": float64(v.RetriesOnLoss), "min_credit": v.MinCredit,
		"max_instances": float64(v.MaxInstances), "max_creates_per_hour": float64(v.MaxCreatesPerHour),
	} {
		if n < 0 || n != n {
			problem("vast_api."+key, "%v is negative", n)
		}
	}
	if v.Bid > 0 && v.Spot {
		problem("vast_api.spot", "bid is set as well; set only one of them")
	}
	if u, err := url.Parse(v.Checkpoints); v.Checkpoints != "" && (err != nil || u.Scheme == "" || u.Host == "" || u.User != nil) {
		problem("vast_api.checkpoint_store", "expected a URL such as s3://bucket/checkpoints, without a password in it")
	}
	switch {
	case (v.CheckpointLoad == "") != (v.CheckpointSave == ""):
		problem("vast_api.checkpoint_save", "checkpoint_load and checkpoint_save go together")
	case v.CheckpointSave != "" && v.Checkpoints == "":
		problem("vast_api.checkpoint_save", "there is no checkpoint_store")
	}
	if v.CheckpointInterval < Duration(time.Second) {
		problem("vast_api.checkpoint_interval", "expected at least 1s")
	}
	if v.Disk < 8 || v.Disk > 100000 {
		problem("vast_api.disk", "expected at least 8 GB, not %v", v.Disk)
	}
	for key, d := range map[string]Duration{"boot_timeout": v.BootTimeout, "max_runtime": v.MaxRuntime, "expected_time": v.ExpectedTime} {
		if d < Duration(time.Second) {
			problem("vast_api."+key, "expected at least 1s: an instance costs money for as long as it exists")
		}
	}
	for pattern := range v.Commands {
		if _, err := path.Match(pattern, ""); err != nil {
			problem("vast_api.commands", "invalid pattern %q", pattern)
		}
	}
	for pattern := range v.Find {
		if _, err := path.Match(pattern, ""); err != nil {
			problem("vast_api.find", "invalid pattern %q", pattern)
		}
	}
	for name, value := range v.ExtraEnv {
		switch {
		case !task.IsVariable(name):
			problem("vast_api.extra_env", "invalid variable name %.40q", name)
		case strings.ContainsRune(value, 0):
			problem("vast_api.extra_env", "%s: the value contains a null byte", name)
		}
	}
}

// Key returns the key of the account, "" if there is none.
func (v Vast) Key() (string, error) {
	if v.APIKeyFile == "" {
		return v.APIKey, nil
	}
	f, err := place.Open(v.APIKeyFile, os.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	key := strings.TrimSpace(string(b))
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s: it must hold the key alone, on one line", v.APIKeyFile)
	}
	return key, err
}
