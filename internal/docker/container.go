package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Spec is a container to be made. The field names are those of the API.
type Spec struct {
	Image      string
	User       string
	WorkingDir string
	Entrypoint []string
	Cmd        []string
	Env        []string `json:",omitempty"` // further ones beside those of the image
	Hostname   string   `json:",omitempty"`
	StopSignal string   `json:",omitempty"`
	Tty        bool     `json:",omitempty"`
	OpenStdin  bool     `json:",omitempty"`
	Labels     map[string]string
	// Healthcheck {"NONE"} keeps the daemon from running that of the image.
	Healthcheck struct{ Test []string }
	HostConfig  HostConfig
	// NetworkingConfig has the names of the container in the network that is its HostConfig.NetworkMode.
	NetworkingConfig struct {
		EndpointsConfig map[string]Endpoints `json:",omitempty"`
	}
}

// Endpoints are the names under which other containers of a network find a container.
type Endpoints struct{ Aliases []string }

// HostConfig has the limits of a container, and its network.
type HostConfig struct {
	NetworkMode    string
	Dns            []string          `json:",omitempty"` //nolint:revive // as the API names it
	ReadonlyRootfs bool              `json:",omitempty"`
	Init           bool              `json:",omitempty"`
	ShmSize        int64             `json:",omitempty"`
	Tmpfs          map[string]string `json:",omitempty"`
	Memory         int64             `json:",omitempty"`
	MemorySwap     int64             `json:",omitempty"`
	NanoCpus       int64             `json:",omitempty"`
	PidsLimit      int64             `json:",omitempty"`
	DeviceRequests []DeviceRequest   `json:",omitempty"`
	Mounts         []Mount           `json:",omitempty"`
}

// Mount is a volume. One without a name, its Source, goes with its container; its labels find it where the daemon
// ended between the two. NoCopy keeps what the image has at Target out of it.
type Mount struct {
	Type, Target  string
	Source        string `json:",omitempty"`
	ReadOnly      bool
	VolumeOptions struct {
		NoCopy bool
		Labels map[string]string
	}
}

// DeviceRequest asks for GPUs.
type DeviceRequest struct {
	Count        int
	Capabilities [][]string
}

// Container is what the daemon says of a container.
type Container struct {
	ID     string `json:"Id"`
	Config struct{ Labels map[string]string }
	State  State
}

// State is what the daemon says of the first process of a container.
type State struct {
	Running, OOMKilled bool
	ExitCode           int
}

func container(id string) string { return "/containers/" + url.PathEscape(id) }

// Create makes a container with a name and returns its id.
func (c *Client) Create(ctx context.Context, name string, s Spec) (string, error) {
	if c.podman { // it has no labels for those without a name
		s.HostConfig.Mounts = slices.DeleteFunc(s.HostConfig.Mounts, func(m Mount) bool { return m.Source == "" })
	}
	var made struct{ ID string }
	err := c.call(ctx, http.MethodPost, "/containers/create", url.Values{"name": {name}}, s, &made)
	return made.ID, err
}

// Start starts a container.
func (c *Client) Start(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, container(id)+"/start", nil, nil, nil)
}

// Kill ends all processes of a container, and waits for their end. It is no error if there are none.
func (c *Client) Kill(ctx context.Context, id string) error {
	err := c.call(ctx, http.MethodPost, container(id)+"/kill", nil, nil, nil)
	if err != nil && !IsStatus(err, http.StatusConflict) { // it does not run
		return err
	}
	return c.Await(ctx, id)
}

// Await waits for the end of all processes of a container.
func (c *Client) Await(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, container(id)+"/wait", url.Values{"condition": {"not-running"}}, nil, nil)
}

// Pause stops all processes of a container where they are, until Unpause.
func (c *Client) Pause(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, container(id)+"/pause", nil, nil, nil)
}

// Unpause lets the processes of a container go on.
func (c *Client) Unpause(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodPost, container(id)+"/unpause", nil, nil, nil)
}

// LastLines returns the last lines that a container has printed; empty if there are none.
func (c *Client) LastLines(ctx context.Context, id string, tty bool) string {
	answer, err := c.request(ctx, http.MethodGet, container(id)+"/logs",
		url.Values{"stdout": {"1"}, "stderr": {"1"}, "tail": {"5"}}, nil, "")
	if err != nil {
		return ""
	}
	defer func() { _ = answer.Body.Close() }()
	var said bytes.Buffer
	from := io.LimitReader(answer.Body, 4000)
	if tty {
		_, _ = said.ReadFrom(from)
	} else {
		_ = demultiplex(from, &said, &said)
	}
	return strings.TrimSpace(said.String())
}

// Remove removes a container with its anonymous volumes, whether it runs or not. A missing one is no
// error, and neither is one that somebody else removes at the same time.
func (c *Client) Remove(ctx context.Context, id string) error {
	err := c.call(ctx, http.MethodDelete, container(id), url.Values{"force": {"1"}, "v": {"1"}}, nil, nil)
	if IsMissing(err) || IsStatus(err, http.StatusConflict) && strings.Contains(err.Error(), "already in progress") {
		return nil
	}
	return err
}

// Inspect describes the container with an id or a name.
func (c *Client) Inspect(ctx context.Context, id string) (out Container, err error) {
	err = c.call(ctx, http.MethodGet, container(id)+"/json", nil, nil, &out)
	return out, err
}

// Written returns how many bytes a container has written over its image, without its volumes.
func (c *Client) Written(ctx context.Context, id string) (int64, error) {
	var is struct{ SizeRw int64 }
	err := c.call(ctx, http.MethodGet, container(id)+"/json", url.Values{"size": {"1"}}, nil, &is)
	return is.SizeRw, err
}

// List returns the containers that have a label, also those that do not run: their labels by their
// ids.
func (c *Client) List(ctx context.Context, label string) (map[string]map[string]string, error) {
	var found []struct {
		ID     string `json:"Id"`
		Labels map[string]string
	}
	err := c.call(ctx, http.MethodGet, "/containers/json", url.Values{"all": {"1"}, "filters": {labelled(label)}}, nil, &found)
	out := map[string]map[string]string{}
	for _, one := range found {
		out[one.ID] = one.Labels
	}
	return out, err
}

// labelled filters what has a label.
func labelled(label string) string { return filter(map[string][]string{"label": {label}}) }

// filter is what the API takes as filters: each key has one of its values, of labels all.
func filter(by map[string][]string) string {
	text, _ := json.Marshal(by) // it cannot fail
	return string(text)
}

// volume is one as the API lists it.
type volume struct {
	Name      string
	Labels    map[string]string
	CreatedAt time.Time
}

func (c *Client) volumes(ctx context.Context, filters string) ([]volume, error) {
	var found struct{ Volumes []volume }
	err := c.call(ctx, http.MethodGet, "/volumes", url.Values{"filters": {filters}}, nil, &found)
	return found.Volumes, err
}

// ListVolumes returns the volumes that have a label: their labels by their names.
func (c *Client) ListVolumes(ctx context.Context, label string) (map[string]map[string]string, error) {
	found, err := c.volumes(ctx, labelled(label))
	out := map[string]map[string]string{}
	for _, one := range found {
		out[one.Name] = one.Labels
	}
	return out, err
}

// UnusedVolumes returns the volumes that have all of the labels and that no container has: by their names, when
// they were made.
func (c *Client) UnusedVolumes(ctx context.Context, labels ...string) (map[string]time.Time, error) {
	found, err := c.volumes(ctx, filter(map[string][]string{"label": labels, "dangling": {"true"}}))
	out := map[string]time.Time{}
	for _, one := range found {
		out[one.Name] = one.CreatedAt
	}
	return out, err
}

// CreateVolume makes a volume with a name and labels. If there is one of the name, it stays as it is. It returns
// the labels of what is there.
func (c *Client) CreateVolume(ctx context.Context, name string, labels map[string]string) (map[string]string, error) {
	var made struct{ Labels map[string]string }
	err := c.call(ctx, http.MethodPost, "/volumes/create", nil, map[string]any{"Name": name, "Labels": labels}, &made)
	return made.Labels, err
}

// RemoveVolume removes a volume. It is no error if it is missing, nor if a container still has it: it
// goes with that container.
func (c *Client) RemoveVolume(ctx context.Context, name string) error {
	err := c.call(ctx, http.MethodDelete, "/volumes/"+url.PathEscape(name), nil, nil, nil)
	if IsMissing(err) || IsStatus(err, http.StatusConflict) {
		return nil
	}
	return err
}

// Put unpacks an archive into a folder of a container.
func (c *Client) Put(ctx context.Context, id, folder string, archive io.Reader) error {
	answer, err := c.request(ctx, http.MethodPut, container(id)+"/archive", url.Values{"path": {folder}}, archive, "application/x-tar")
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// Get returns an archive of a file or folder of a container. Its entries begin with the last element
// of the path. The caller closes it.
func (c *Client) Get(ctx context.Context, id, path string) (io.ReadCloser, error) {
	answer, err := c.request(ctx, http.MethodGet, container(id)+"/archive", url.Values{"path": {path}}, nil, "")
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}
