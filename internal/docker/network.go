package docker

import (
	"context"
	"net/http"
	"net/url"
	"strings"
)

// HasNetwork reports whether the daemon has a network.
func (c *Client) HasNetwork(ctx context.Context, name string) (bool, error) {
	err := c.call(ctx, http.MethodGet, network(name), nil, nil, nil)
	if IsMissing(err) {
		return false, nil
	}
	return err == nil, err
}

func network(name string) string { return "/networks/" + url.PathEscape(name) }

// CreateNetwork makes a bridge with a name. One that is internal leads nowhere: neither out of the daemon's
// machine, nor to that machine, which has no address there.
func (c *Client) CreateNetwork(ctx context.Context, name string, internal bool, labels map[string]string) error {
	options := map[string]string{}
	if internal {
		options["com.docker.network.bridge.inhibit_ipv4"] = "true"
	}
	return c.call(ctx, http.MethodPost, "/networks/create", nil, map[string]any{"Name": name, "CheckDuplicate": true,
		"Driver": "bridge", "Internal": internal, "Options": options, "Labels": labels}, nil)
}

// ListNetworks returns the networks that have a label: their labels by their names.
func (c *Client) ListNetworks(ctx context.Context, label string) (map[string]map[string]string, error) {
	var found []struct {
		Name   string
		Labels map[string]string
	}
	err := c.call(ctx, http.MethodGet, "/networks", url.Values{"filters": {labelled(label)}}, nil, &found)
	out := map[string]map[string]string{}
	for _, one := range found {
		out[one.Name] = one.Labels
	}
	return out, err
}

// RemoveNetwork removes a network. It is no error if it is missing, nor if a container of somebody else uses it.
func (c *Client) RemoveNetwork(ctx context.Context, name string) error {
	err := c.call(ctx, http.MethodDelete, network(name), nil, nil, nil)
	if IsMissing(err) || IsStatus(err, http.StatusForbidden) && strings.Contains(err.Error(), "active endpoints") {
		return nil
	}
	return err
}

// Connect connects a container with a network, under further names.
func (c *Client) Connect(ctx context.Context, id, to string, aliases ...string) error {
	return c.call(ctx, http.MethodPost, network(to)+"/connect", nil,
		map[string]any{"Container": id, "EndpointConfig": Endpoints{aliases}}, nil)
}

// Disconnect takes a container off a network.
func (c *Client) Disconnect(ctx context.Context, id, from string) error {
	return c.call(ctx, http.MethodPost, network(from)+"/disconnect", nil, map[string]any{"Container": id}, nil)
}
