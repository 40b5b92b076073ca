package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Changes are the paths of a container that its image has otherwise: those that were added or
// changed, and those that were removed. Its volumes are not among them.
type Changes struct{ Changed, Removed []string }

// maxChanges is how many paths of a container may be changed.
const maxChanges = 1 << 20

// Changes asks what has been changed in a container.
func (c *Client) Changes(ctx context.Context, id string) (out Changes, err error) {
	answer, err := c.request(ctx, http.MethodGet, container(id)+"/changes", nil, nil, "")
	if err != nil {
		return out, err
	}
	defer func() { _ = answer.Body.Close() }()
	d := json.NewDecoder(answer.Body)
	if first, err := d.Token(); err != nil || first == nil { // null is no change
		return out, err
	}
	for d.More() {
		var one struct {
			Path string
			Kind int // 0: changed, 1: added, 2: removed
		}
		if err := d.Decode(&one); err != nil {
			return out, fmt.Errorf("the answer of the Docker daemon is not what its API says: %w", err)
		}
		if one.Kind == 2 {
			out.Removed = append(out.Removed, one.Path)
		} else {
			out.Changed = append(out.Changed, one.Path)
		}
		if len(out.Changed)+len(out.Removed) > maxChanges {
			return out, ErrTooLarge
		}
	}
	if _, err := d.Token(); err != nil {
		return out, errors.Join(errors.New("the answer of the Docker daemon broke off"), err)
	}
	return out, nil
}
