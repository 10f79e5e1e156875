package server

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// Main is the server as a program:
//
//	serve [-url-file FILE] [-listen ADDRESS] [-state FILE] [-git DIR] [-moved] …
//	get WHAT [NAME=VALUE]…           tasks, ids, log, artifact, artifacts, requests, published, world
//	post WHAT [NAME=VALUE]… [@FILE]  add, faults, mend, stop, expire-tokens, expire-urls, forget
//
// get and post find the server by the file that $ARKINDEX_SERVER names, and wait
// for it to be there.
func Main(args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return errors.New("want serve, get or post")
	}
	switch args[0] {
	case "serve":
		return serve(args[1:])
	case "get":
		return ask(http.MethodGet, args[1:], stdout)
	case "post":
		return ask(http.MethodPost, args[1:], stdout)
	}
	return fmt.Errorf("%q is not one of serve, get and post", args[0])
}

func serve(args []string) error {
	flags, opt := flagSet("serve")
	listen := flags.String("listen", "127.0.0.1:0", "address to listen on")
	urlFile := flags.String("url-file", os.Getenv("ARKINDEX_SERVER"), "file to write the server's URL to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := New(*opt)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	if *urlFile != "" {
		if err := Announce(*urlFile, listener.Addr()); err != nil {
			return err
		}
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	web := &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	go func() {
		<-ctx.Done()
		_ = web.Close()
	}()
	if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// NewFromFlags is New with the flags of serve.
func NewFromFlags(args []string) (*Server, error) {
	flags, opt := flagSet("up")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	return New(*opt)
}

func flagSet(name string) (*flag.FlagSet, *Options) {
	opt := &Options{}
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.StringVar(&opt.StateFile, "state", "", "file that keeps the world")
	flags.StringVar(&opt.FarmID, "farm", "", "id of the farm")
	flags.StringVar(&opt.Seed, "seed", "", "seed of the farm")
	flags.DurationVar(&opt.TokenLife, "token-life", 0, "life of an agent's token")
	flags.DurationVar(&opt.URLLife, "url-life", 0, "life of a presigned URL")
	flags.BoolVar(&opt.Moved, "moved", false, "agents' operations are elsewhere")
	flags.BoolVar(&opt.NoDocument, "no-document", false, "no OpenAPI document")
	flags.BoolVar(&opt.AnyHost, "any-host", false, "tasks that need a GPU go to agents without one")
	flags.BoolVar(&opt.Paginated, "paginated", false, "artifacts are listed in pages")
	flags.StringVar(&opt.GitDir, "git", "", "directory of bare repositories to serve under /git/")
	flags.StringVar(&opt.LogType, "log-type", "", "Content-Type that logs are signed for")
	return flags, opt
}

// Announce writes a server's URL to a file.
func Announce(file string, address net.Addr) error {
	if err := os.WriteFile(file+".new", []byte("http://"+address.String()+"/"), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// startTime is how long get and post wait for a server that is just starting.
const startTime = 10 * time.Second

func ask(method string, args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return errors.New("want what to get or post")
	}
	query := url.Values{}
	var body []byte
	for _, arg := range args[1:] {
		if file, ok := strings.CutPrefix(arg, "@"); ok {
			var err error
			if body, err = os.ReadFile(file); err != nil {
				return err
			}
			continue
		}
		if strings.HasPrefix(arg, "{") {
			body = []byte(arg)
			continue
		}
		name, value, _ := strings.Cut(arg, "=")
		query.Set(name, value)
	}
	base, err := address()
	if err != nil {
		return err
	}
	req, err := http.NewRequest(method, base+"_control/"+args[0]+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", args[0], bytes.TrimSpace(answer))
	}
	_, err = stdout.Write(answer)
	return err
}

func address() (string, error) {
	file := os.Getenv("ARKINDEX_SERVER")
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		b, err := os.ReadFile(file)
		if err == nil {
			return string(b), nil
		}
		if time.Since(start) > startTime {
			return "", err
		}
	}
}
