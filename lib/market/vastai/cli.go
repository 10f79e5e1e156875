package vastai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// CLI is the transport by the vastai program, with the program's own credentials unless Key is
// set.
type CLI struct {
	Run  command.Runner
	Path string // of the program; default: vastai in PATH
	URL  string // "": the program's default
	// Key is the key of the account; "": the one that the program has stored.
	Key string
	transport
}

// NewCLI returns the transport by the vastai program.
func NewCLI(run command.Runner, address string) *CLI {
	return &CLI{Run: run, Path: "vastai", URL: strings.TrimRight(address, "/"), transport: patient}
}

// Name returns "cli".
func (c *CLI) Name() string { return "cli" }

// Timeouts of the program. On a slow network file system, starting Python alone can take tens
// of seconds.
const (
	cliTime   = time.Minute
	orderTime = 2 * time.Minute
)

// once runs the program. Its exit status is 0 even after an error, so an answer is valid only
// if it is JSON and standard error has no error message.
func (c *CLI) once(ctx context.Context, op string, args ...string) ([]byte, error) {
	return c.run(ctx, op, command.Cmd{Name: c.Path, Args: args, Timeout: cliTime}, Order{})
}

// common are the options of every call. They turn off the program's own retries.
var common = []string{"--raw", "--retry", "1", "--no-color"}

func (c *CLI) environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return c.URL != "" && strings.HasPrefix(v, "VAST_URL=") ||
			c.Key != "" && strings.HasPrefix(v, "VAST_API_KEY=") || v == "VAST_API_KEY="
	})
	if c.URL != "" {
		env = append(env, "VAST_URL="+c.URL)
	}
	if c.Key != "" {
		env = append(env, "VAST_API_KEY="+c.Key)
	}
	return append(env, "VASTAI_NO_UPDATE_CHECK=1", "LC_ALL=C.UTF-8", "PYTHONIOENCODING=utf-8", "COLUMNS=200")
}

// run runs the program. o is the order, if the call is one, whose secrets are hidden in
// messages.
func (c *CLI) run(ctx context.Context, op string, cmd command.Cmd, o Order) ([]byte, error) {
	cmd.Env = c.environ()
	if cmd.Stdin == nil {
		cmd.Stdin = strings.NewReader("") // the program must not ask the user
	}
	if err := keepPace(ctx, c.pace, op); err != nil {
		return nil, err
	}
	result, err := c.Run.Run(ctx, cmd)
	var missing *command.NotFoundError
	if errors.As(err, &missing) {
		return nil, fault.Hint(
			fault.Wrap(fault.Unavailable, err),
			"install it with \"pip install vastai\", or set vast_api.api_key for the API")
	}
	if said, ok := complaint(hide(result.Stderr, o)); ok {
		kind := outcome(op, said.Status, said.Words)
		switch {
		case op == orderOp && said.Status == http.StatusBadRequest && (said.Words == "" || strings.HasPrefix(said.Words, "(no detail")):
			kind = ErrCredit // the market sometimes reports missing credit like this
		case kind == nil:
			kind = ErrUnknown
		}
		e := &callError{op: op, kind: kind, status: said.Status, words: clean(said.Words)}
		if errors.Is(kind, ErrQuota) {
			e.until = pacing(c.now(), true, nil, said.Words)
		}
		return nil, hinted(e)
	}
	var late *command.TimeoutError
	if errors.As(err, &late) {
		return nil, hinted(&callError{op: op, kind: ErrUnknown, words: late.Error(), late: true})
	}
	if err != nil {
		var exit *command.ExitError
		words := "the vastai program did not answer"
		if errors.As(err, &exit) {
			words = "the vastai program failed: " + lastLine(string(hide([]byte(exit.Stderr), o)))
			switch exit.Code {
			case 2:
				return nil, failed(op, ErrInvalid, 0, words)
			case tooOld:
				return nil, err
			}
		}
		return nil, failed(op, ErrUnknown, 0, words)
	}
	return bytes.TrimSpace(result.Stdout), nil
}

type complained struct {
	Error  bool   `json:"error"`
	Status int    `json:"status_code"`
	Words  string `json:"msg"`
}

// complaint finds the line with the error, as JSON, on the program's standard error.
func complaint(stderr []byte) (complained, bool) {
	for line := range bytes.Lines(stderr) {
		var said complained
		if json.Unmarshal(line, &said) == nil && said.Error {
			return said, true
		}
	}
	return complained{}, false
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// repeat makes a call that is safe to retry, and requires JSON.
func (c *CLI) repeat(ctx context.Context, op string, args ...string) ([]byte, error) {
	wait := c.Wait
	for try := 1; ; try++ {
		raw, err := c.once(ctx, op, args...)
		if err == nil && !json.Valid(raw) {
			// Plain text, for example when a session has expired.
			err = failed(op, ErrUnknown, 0, "the vastai program printed no JSON: "+string(raw[:min(len(raw), 200)]))
		}
		if err == nil || try >= c.Tries || !again(err) || !pause(ctx, wait) {
			return raw, err
		}
		wait *= 2
	}
}

// Account returns the account of the program's key.
func (c *CLI) Account(ctx context.Context) (Account, error) {
	raw, err := c.repeat(ctx, "account", append([]string{"show", "user"}, common...)...)
	if err != nil {
		return Account{}, err
	}
	return parseAccount(raw)
}

// Search returns offers.
func (c *CLI) Search(ctx context.Context, s Search) (Found, error) {
	query, err := s.Filters.query()
	if err != nil {
		return Found{}, fault.Wrap(fault.Usage, err)
	}
	args := []string{"search", "offers", query, "--no-default", "--type", s.kind(),
		"--storage", strconv.FormatFloat(s.Disk, 'f', -1, 64), "--order", "dph_total"}
	if s.Limit > 0 {
		args = append(args, "--limit", strconv.Itoa(s.Limit))
	}
	raw, err := c.repeat(ctx, "search", append(args, common...)...)
	if err != nil {
		return Found{}, err
	}
	found, err := parseOffers(raw)
	if err != nil {
		return Found{}, failed("search", nil, 0, fault.Text(err))
	}
	return found, nil
}

// Oldest is the version from which on the vastai program sends the key in a header. Earlier ones put it into addresses,
// which proxies and servers log: nothing is ordered with them; what was ordered can still be destroyed.
var Oldest = [3]int{1, 5, 6}

// tooOld is the exit status of launch where the program is older.
const tooOld = 78

// launch runs the vastai program with arguments from standard input. The variables of a task
// may be secrets, and every user of the machine can read argument lists.
var launch = fmt.Sprintf(`import json, re, sys
from importlib.metadata import version
if [int(n) for n in re.findall("[0-9]+", version("vastai"))[:3]] < [%d, %d, %d]:
    print(version("vastai"), file=sys.stderr)
    sys.exit(%d)
sys.argv = json.load(sys.stdin)
from vastai.cli.main import main
main()`, Oldest[0], Oldest[1], Oldest[2], tooOld)

// Create orders an instance, once.
func (c *CLI) Create(ctx context.Context, offer int64, o Order) (Created, error) {
	if err := o.Check(); err != nil {
		return Created{}, err
	}
	env, err := envFlag(o.Env)
	if err != nil {
		return Created{}, err
	}
	python, err := c.interpreter()
	if err != nil {
		return Created{}, err
	}
	argv := []string{"vastai", "create", "instance", strconv.FormatInt(offer, 10), "--image", o.Image,
		"--disk", strconv.FormatFloat(o.Disk, 'f', -1, 64), "--label", o.Label,
		"--env", env, "--entrypoint", o.Entrypoint, "--cancel-unavail"}
	if o.Login != "" {
		argv = append(argv, "--login", o.Login)
	}
	if o.Bid > 0 {
		argv = append(argv, "--bid_price", strconv.FormatFloat(o.Bid, 'f', -1, 64))
	}
	argv = append(append(append(argv, common...), "--args"), o.Args...)
	stdin, err := json.Marshal(argv)
	if err != nil {
		return Created{}, err
	}
	raw, err := c.run(ctx, orderOp, command.Cmd{
		Name: python, Args: []string{"-c", launch}, Stdin: bytes.NewReader(stdin), Dir: "/", Timeout: orderTime,
	}, o)
	var exit *command.ExitError
	if errors.As(err, &exit) && exit.Code == tooOld {
		return Created{}, fault.Hint(
			fault.Errorf(fault.Unavailable, "the vastai program is version %s, which shows the key in addresses: nothing is ordered",
				strings.TrimSpace(exit.Stderr)),
			fmt.Sprintf("update it to version %d.%d.%d or later, or set vast_api.via: api", Oldest[0], Oldest[1], Oldest[2]))
	}
	if err != nil {
		return Created{}, err
	}
	return parseCreated(hide(raw, o))
}

// interpreter returns the Python interpreter of the vastai program.
func (c *CLI) interpreter() (string, error) {
	path := c.Path
	if !strings.ContainsRune(path, '/') {
		var err error
		if path, err = command.Path(path); err != nil {
			return "", fault.Wrap(fault.Unavailable, err)
		}
	}
	refuse := func(why string) (string, error) {
		return "", fault.Hint(
			fault.Errorf(fault.Unavailable,
				"the vastai program %q: %s, so that nothing can be ordered without showing tokens to other users", path, why),
			"set vast_api.api_key (or api_key_file), and vast_api.via: api")
	}
	f, err := os.Open(path)
	if err != nil {
		return refuse("it cannot be read")
	}
	defer f.Close()
	start := make([]byte, 512)
	n, _ := io.ReadFull(f, start)
	line, _, _ := strings.Cut(string(start[:n]), "\n")
	python, ok := strings.CutPrefix(line, "#!")
	python = strings.TrimSpace(python)
	if !ok || !strings.HasPrefix(python, "/") || strings.ContainsAny(python, " \t") ||
		!strings.Contains(python[strings.LastIndexByte(python, '/'):], "python") {
		return refuse("not a Python program that names its interpreter")
	}
	return python, nil
}

// envFlag formats variables for the option --env. The program's parser silently drops what it
// does not expect, so the result is checked with a copy of that parser.
func envFlag(env map[string]string) (string, error) {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		words = append(words, "-e "+name+"='"+env[name]+"'")
	}
	flag := strings.Join(words, " ")
	if read := readEnvFlag(flag); !maps.Equal(read, env) {
		var lost []string
		for _, name := range slices.Sorted(maps.Keys(env)) {
			alone := map[string]string{name: env[name]}
			if strings.Contains(env[name], "'") || strings.Count(env[name], `"`)%2 == 1 ||
				!maps.Equal(readEnvFlag("-e "+name+"='"+env[name]+"'"), alone) {
				lost = append(lost, name)
			}
		}
		return "", fault.Hint(
			fmt.Errorf("%w: the vastai program would lose the value of %s, which has quotes in it", ErrInvalid, strings.Join(lost, ", ")),
			"set vast_api.api_key (or api_key_file), and vast_api.via: api")
	}
	return flag, nil
}

// readEnvFlag parses --env like the program does.
func readEnvFlag(s string) map[string]string {
	var words []string
	var word strings.Builder
	single, double := false, false
	for _, r := range s {
		switch {
		case r == ' ' && !single && !double:
			words = append(words, word.String())
			word.Reset()
			continue
		case r == '\'':
			single = !single
		case r == '"':
			double = !double
		}
		word.WriteRune(r)
	}
	words = append(words, word.String())
	env := map[string]string{}
	for i := 0; i < len(words); i++ {
		if words[i] != "-e" || i+1 == len(words) {
			continue
		}
		i++
		if name, value, ok := strings.Cut(words[i], "="); ok {
			env[name] = strings.Trim(value, `'"`)
		}
	}
	return env
}

// List returns all instances, or those with a label. It requests page by page, as the program's
// option for all pages turns unexpected answers into an empty list.
func (c *CLI) List(ctx context.Context, label string) (Listing, error) {
	return collect(c.now(), label, func(after string) ([]byte, error) {
		// The older name, which all versions accept.
		args := []string{"show", "instances-v1", "--limit", "25"}
		if label != "" {
			args = append(args, "--label", label)
		}
		if after != "" {
			args = append(args, "--next-token", after)
		}
		return c.repeat(ctx, "list of instances", append(args, common...)...)
	})
}

// Show asks for one instance.
func (c *CLI) Show(ctx context.Context, id int64) (*Instance, error) {
	op := showOp(id)
	raw, err := c.repeat(ctx, op, append([]string{"show", "instance", strconv.FormatInt(id, 10)}, common...)...)
	if err != nil {
		return nil, err
	}
	return parseShown(op, raw, id)
}

// Destroy destroys instances. The program prints nothing; that several were refused it hides, but for
// the words about its own retries.
func (c *CLI) Destroy(ctx context.Context, ids ...int64) error {
	op := destroyOp(ids)
	args := []string{"destroy", "instance"}
	if len(ids) > 1 {
		args[1] = "instances"
	}
	for _, id := range ids {
		args = append(args, strconv.FormatInt(id, 10))
	}
	wait := c.Wait
	for try := 1; ; try++ {
		raw, err := c.once(ctx, op, append(append(args, "-y"), common...)...)
		switch {
		case len(ids) == 1 && (isGone(err) || status(err) == http.StatusNotFound && !errors.Is(err, ErrAuth)):
			return nil // the program does not print the error code; List shows the result
		case err == nil && (len(ids) > 1 && len(raw) > 0 ||
			bytes.Contains(raw, []byte(`"success": false`)) || bytes.Contains(raw, []byte("Aborted"))):
			return failed(op, ErrUnknown, 0, string(raw))
		case err == nil:
			return nil
		case try >= c.Tries || !again(err) || !pause(ctx, wait):
			return err
		}
		wait *= 2
	}
}

// Log returns the last lines of an instance's output. The program waits some seconds for the
// log by itself, and prints text instead of JSON.
func (c *CLI) Log(ctx context.Context, id int64, lines int) ([]byte, error) {
	op := fmt.Sprintf("log of %d", id)
	text, err := c.once(ctx, op, append([]string{"logs", strconv.FormatInt(id, 10), "--tail", strconv.Itoa(lines)}, common...)...)
	switch {
	case errors.Is(err, ErrUnknown), errors.Is(err, ErrInvalid):
		var said *callError
		if errors.As(err, &said) && said.status > 0 {
			return nil, failed(op, ErrNotReady, said.status, said.words) // the market's message
		}
		return nil, failed(op, ErrNotReady, 0, "")
	case err != nil:
		return nil, err
	}
	return utf8Again(text), nil
}

// utf8Again restores UTF-8 that the program has decoded as Latin-1 because the log has no
// character set.
func utf8Again(text []byte) []byte {
	var b []byte
	for _, r := range string(text) {
		if r > 0xff {
			return text
		}
		b = append(b, byte(r))
	}
	if !utf8.Valid(b) {
		return text
	}
	return b
}
