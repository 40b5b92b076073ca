package sdks

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/model"
)

// gather gives the requests of our judges for a batch, in the order of the prompts.
func (w *world) gather(api judge.API, prompts ...string) (out []model.BatchRequest) {
	w.Helper()
	for i, prompt := range prompts {
		batched := w.judges.InBatches("agent", w.TempDir(), "rollout", func(string) map[string]eval.Delivery { return nil })
		if _, err := batched.Ask(w.Context(), question(api, prompt, i)); !errors.Is(err, eval.ErrLater) {
			w.Fatalf("%s: %v", prompt, err)
		}
		for _, r := range batched.Requests("quality") {
			out = append(out, model.BatchRequest{CustomID: r.CustomID, Body: r.Body})
		}
	}
	if len(out) != len(prompts) {
		w.Fatalf("%d requests of %d questions", len(out), len(prompts))
	}
	return out
}

// batches are those of a provider, as our judges have them.
func (w *world) batches(provider string) *model.Batches {
	w.Helper()
	b, err := w.judges.Batches(provider)
	if err != nil {
		w.Fatal(err)
	}
	return b
}

// answers has us read a batch, and compares it with what the official client has read of one with the
// same requests: the whole answer of one that has one, else a part of what is said of it.
func (w *world) answers(provider *model.Batches, b model.Batch, requests []model.BatchRequest, said map[string]string) {
	w.Helper()
	status, err := provider.Check(w.Context(), b)
	if err != nil || !status.Ended {
		w.Fatalf("we say that the batch is %+v, %v", status, err)
	}
	got := map[string]bool{}
	err = provider.Answers(w.Context(), b, status, func(key string, payload json.RawMessage) error {
		var in struct {
			Body  json.RawMessage
			Error string
		}
		if err := json.Unmarshal(payload, &in); err != nil {
			return err
		}
		got[key] = true
		if len(in.Body) > 0 && !alike(in.Body, said[key]) || len(in.Body) == 0 && (said[key] == "" || !strings.Contains(in.Error, said[key])) {
			w.Errorf("%s: we read %s, the official client %s", key, payload, said[key])
		}
		return nil
	})
	if err != nil || len(got) != len(requests) {
		w.Errorf("we read %d answers of %d: %v", len(got), len(requests), err)
	}
}

// alike compares two answers, but for the time at which they were given.
func alike(ours json.RawMessage, theirs string) bool {
	var a, b map[string]any
	if json.Unmarshal(ours, &a) != nil || json.Unmarshal([]byte(theirs), &b) != nil {
		return false
	}
	delete(a, "created")
	delete(b, "created")
	return reflect.DeepEqual(a, b)
}

// sameBatches checks that two batches have the same requests.
func (w *world) sameBatches(ours, theirs string) {
	w.Helper()
	requests := func(id string) (out []any) {
		for _, q := range w.server.Requests() {
			if q.Batch == id {
				out = append(out, plain(q.Body))
			}
		}
		return out
	}
	got, want := requests(ours), requests(theirs)
	slices.SortFunc(got, func(a, b any) int { return strings.Compare(indented(a), indented(b)) })
	slices.SortFunc(want, func(a, b any) int { return strings.Compare(indented(a), indented(b)) })
	if len(got) == 0 || !reflect.DeepEqual(got, want) {
		w.Errorf("our batch has\n%s\nthe official client's\n%s", indented(got), indented(want))
	}
}
