package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Image is what the daemon says of an image.
type Image struct {
	ID           string `json:"Id"`
	Os           string
	Architecture string
	// Config is the configuration of the image's containers.
	Config json.RawMessage
}

// Image describes the image with an id or a name.
func (c *Client) Image(ctx context.Context, name string) (out Image, err error) {
	err = c.call(ctx, http.MethodGet, "/images/"+imagePath(name)+"/json", nil, nil, &out)
	return out, err
}

// imagePath escapes all of a name but its slashes.
func imagePath(name string) string { return strings.ReplaceAll(url.PathEscape(name), "%2F", "/") }

// Pull gets an image from its registry, with lines for the log.
func (c *Client) Pull(ctx context.Context, name string, log io.Writer) error {
	if !strings.Contains(name, "@") && !strings.Contains(name[strings.LastIndexByte(name, '/')+1:], ":") {
		name += ":latest" // otherwise all its tags would come
	}
	_, err := c.stream(ctx, "/images/create", url.Values{"fromImage": {name}}, nil, log)
	return err
}

// Build says what is built of a context.
type Build struct {
	// Dockerfile is a name in the context, and Target one of its stages; empty for the last.
	Dockerfile, Target string
	Args               map[string]string
	// Labels are those of the image.
	Labels map[string]string
}

// Build builds a context, which is an archive. It returns the id of the image.
func (c *Client) Build(ctx context.Context, archive io.Reader, b Build, log io.Writer) (string, error) {
	labels, err := json.Marshal(b.Labels)
	if err != nil {
		return "", err
	}
	args, err := json.Marshal(b.Args)
	if err != nil {
		return "", err
	}
	query := url.Values{"dockerfile": {b.Dockerfile}, "target": {b.Target}, "buildargs": {string(args)},
		"labels": {string(labels)}, "rm": {"1"}, "forcerm": {"1"}}
	if !c.podman { // which has no network of this name
		bridged, err := c.HasNetwork(ctx, "bridge")
		if err != nil {
			return "", err
		}
		if !bridged { // what a build downloads comes over the daemon's own
			query.Set("networkmode", "host")
		}
	}
	id, err := c.stream(ctx, "/build", query, archive, log)
	if err == nil && id == "" {
		err = errors.New("the Docker daemon has built the image, and does not say which")
	}
	return id, err
}

// stream makes a request whose answer tells what is done meanwhile. It returns the id of the image
// that was made.
func (c *Client) stream(ctx context.Context, path string, query url.Values, body io.Reader, log io.Writer) (id string, err error) {
	kind := ""
	if body != nil {
		kind = "application/x-tar"
	}
	answer, err := c.request(ctx, http.MethodPost, path, query, body, kind)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	for d := json.NewDecoder(answer.Body); ; {
		var said struct {
			Stream, Status, Error string
			Progress              string
			Aux                   struct{ ID string }
		}
		if err := d.Decode(&said); errors.Is(err, io.EOF) {
			return id, nil
		} else if ctx.Err() != nil {
			return "", context.Cause(ctx)
		} else if err != nil {
			return "", fmt.Errorf("the answer of the Docker daemon broke off: %w", err)
		}
		switch {
		case said.Error != "":
			return "", errors.New(said.Error)
		case said.Aux.ID != "":
			id = said.Aux.ID
		case said.Stream != "":
			_, _ = io.WriteString(log, said.Stream) // the log is for people
		case said.Status != "" && said.Progress == "":
			_, _ = io.WriteString(log, said.Status+"\n")
		}
	}
}
