package model

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"time"
)

// anthropicBatches is Anthropic's interface: all requests in one body, and one file of results. A
// batch cannot carry an id of ours.
type anthropicBatches struct{}

const anthropicPath = "/v1/messages/batches"

type anthropicBatch struct {
	ID               string    `json:"id"`
	ProcessingStatus string    `json:"processing_status"`
	CreatedAt        time.Time `json:"created_at"`
	RequestCounts    struct {
		Processing, Succeeded, Errored, Canceled, Expired int
	} `json:"request_counts"`
}

func (anthropicBatches) start(ctx context.Context, c *Batches, _ Batch, requests []BatchRequest) (string, error) {
	type request struct {
		CustomID string          `json:"custom_id"`
		Params   json.RawMessage `json:"params"`
	}
	var all []request
	for _, r := range requests {
		all = append(all, request{r.CustomID, r.Body})
	}
	var made anthropicBatch
	if err := c.json(ctx, http.MethodPost, anthropicPath, map[string]any{"requests": all}, &made); err != nil {
		return "", err
	}
	if made.ID == "" {
		return "", &BatchError{Message: "the provider " + c.e.Name + " has given the batch no id"}
	}
	return made.ID, nil
}

// find returns a batch that was made since the first try, has as many requests, and is not known to
// be another. If there are several, nobody can tell which it is, and the batch is started again.
// That only costs money, since results are matched by their keys.
func (anthropicBatches) find(ctx context.Context, c *Batches, b Batch) (string, error) {
	found, after := []string{}, ""
	for {
		var page struct {
			Data    []anthropicBatch `json:"data"`
			HasMore bool             `json:"has_more"`
			LastID  string           `json:"last_id"`
		}
		if err := c.json(ctx, http.MethodGet, anthropicPath+"?limit=100"+after, nil, &page); err != nil {
			return "", err
		}
		old := false
		for _, one := range page.Data {
			n := one.RequestCounts
			if old = one.CreatedAt.Before(b.Since.Add(-clockSkew)); old {
				break
			}
			if n.Processing+n.Succeeded+n.Errored+n.Canceled+n.Expired == b.Size && !slices.Contains(b.Others, one.ID) {
				found = append(found, one.ID)
			}
		}
		if old || !page.HasMore || page.LastID == "" {
			break
		}
		after = "&after_id=" + url.QueryEscape(page.LastID)
	}
	if len(found) != 1 {
		return "", nil
	}
	return found[0], nil
}

func (anthropicBatches) check(ctx context.Context, c *Batches, id string) (BatchStatus, error) {
	var b anthropicBatch
	if err := c.json(ctx, http.MethodGet, anthropicPath+"/"+url.PathEscape(id), nil, &b); err != nil {
		return BatchStatus{}, err
	}
	// The results are at the provider's own URL, not at results_url: the key goes nowhere else.
	return BatchStatus{Ended: b.ProcessingStatus == "ended", Why: b.ProcessingStatus,
		files: []string{anthropicPath + "/" + url.PathEscape(id) + "/results"}}, nil
}

func (anthropicBatches) answer(line []byte) (customID string, out BatchAnswer, err error) {
	var in struct {
		CustomID string `json:"custom_id"`
		Result   struct {
			Type    string          `json:"type"`
			Message json.RawMessage `json:"message"`
			Error   json.RawMessage `json:"error"`
		} `json:"result"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return "", out, err
	}
	if out.Body = in.Result.Message; in.Result.Type != "succeeded" {
		out.Body, out.Error = nil, in.Result.Type
		if len(in.Result.Error) > 0 {
			out.Error += ": " + Short(string(in.Result.Error))
		}
	}
	return in.CustomID, out, nil
}

func (anthropicBatches) cancelPath(id string) string {
	return anthropicPath + "/" + url.PathEscape(id) + "/cancel"
}
