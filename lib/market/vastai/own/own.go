// Package own is what a container on Vast.ai knows of its own instance, and may ask the market of it. It needs no file of
// the image: CA certificates and the resolver are built in.
package own

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
)

// Variables that the market sets in a container: the id of its instance, a key for that alone, and how many GPUs it has.
const (
	IDEnv   = "CONTAINER_ID"
	KeyEnv  = "CONTAINER_API_KEY"
	GPUsEnv = "GPU_COUNT"
)

// KeyFile is where the market may have left the key as well, below the home directory.
const KeyFile = ".vast_api_key"

// Instance is the container's own.
type Instance struct{ URL, Key string }

// Of returns it, from variables of the container.
func Of(getenv func(string) string) Instance {
	host := getenv("VAST_URL")
	if host == "" {
		host = "https://console.vast.ai"
	}
	return Instance{strings.TrimSuffix(host, "/") + "/api/v0/instances/" + getenv(IDEnv) + "/", getenv(KeyEnv)}
}

// Answer is what the market says of an instance.
type Answer struct {
	There bool   // it is there, and is to run
	Label string // "": it was not told
}

// ErrSecret: the market knows the instance, and does not let it look at itself.
var ErrSecret = errors.New("the key of the instance may not look at it")

// Ask asks whether the instance is there, and is to run. An error is no answer.
func (i Instance) Ask(ctx context.Context) (Answer, error) {
	status, body, err := request(ctx, http.MethodGet, i.URL, "", i.Key)
	if err != nil {
		return Answer{}, err
	}
	var said struct {
		Instances json.RawMessage `json:"instances"`
		Error     string          `json:"error"`
	}
	parsed := json.Unmarshal(body, &said) == nil
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return Answer{}, ErrSecret
	case status == http.StatusNotFound && parsed && (said.Error == "no_such_instance" || said.Error == "auth_error"):
		return Answer{}, nil // the key goes with the instance
	case status != http.StatusOK || !parsed || len(said.Instances) == 0:
		return Answer{}, errOdd
	case string(said.Instances) == "null":
		return Answer{}, nil
	}
	var row struct {
		Label    string `json:"label"`
		Intended string `json:"intended_status"`
	}
	if json.Unmarshal(said.Instances, &row) != nil {
		return Answer{}, errOdd
	}
	return Answer{There: row.Intended == "" || row.Intended == "running", Label: row.Label}, nil
}

var errOdd = errors.New("the market does not say whether the instance is there")

// Tell gives the instance another label.
func (i Instance) Tell(ctx context.Context, label string) error {
	return i.do(ctx, http.MethodPut, map[string]string{"label": label})
}

// Stop requests that it is stopped.
func (i Instance) Stop(ctx context.Context) error {
	return i.do(ctx, http.MethodPut, map[string]string{"state": "stopped"})
}

// Destroy requests that it is destroyed.
func (i Instance) Destroy(ctx context.Context) error {
	return i.do(ctx, http.MethodDelete, map[string]string{})
}

func (i Instance) do(ctx context.Context, method string, body map[string]string) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	status, _, err := request(ctx, method, i.URL, string(b), i.Key)
	if err == nil && status/100 != 2 {
		err = errOdd
	}
	return err
}
