package schemas

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecode(t *testing.T) {
	const document = `{"schemaVersion":"2.1","runId":"r","status":"faulted","statistics":{"thresholds":{"pass":0.5}},"evaluationSetResults":[
		{"evaluationId":"passes","status":"completed","score":0.5},
		{"evaluationId":"is low","status":"completed","score":0.4},
		{"evaluationId":"has no score","status":"completed","score":null},
		{"evaluationId":"waits","status":"suspended","score":null},
		{"evaluationId":"faulted","status":"faulted","score":null,"error":{"category":"exit","message":"m"}}]}`
	r, err := Decode(strings.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, one := range r.Failed() {
		got = append(got, one.EvaluationID)
	}
	if want := "is low, faulted"; strings.Join(got, ", ") != want {
		t.Errorf("got %v, expected %s", got, want)
	}
}

func TestDecodeChecksTheVersion(t *testing.T) {
	for _, document := range []string{`{"schemaVersion":"1.0"}`, `{"schemaVersion":"3.0"}`, `{"schemaVersion":"20"}`, `{}`} {
		var version *VersionError
		if _, err := Decode(strings.NewReader(document)); !errors.As(err, &version) {
			t.Errorf("%s gave %v", document, err)
		}
	}
	for _, document := range []string{``, `[]`, `{"schemaVersion":"2.0","revision":"one"}`} {
		if _, err := Decode(strings.NewReader(document)); err == nil {
			t.Errorf("%s was accepted", document)
		}
	}
}

func TestEventDecode(t *testing.T) {
	e := Event{Type: EventRolloutFinished, Data: []byte(`{"state":"faulted","score":null,"fault":{"category":"exit","message":"m"}}`)}
	data, err := e.Decode()
	if f, ok := data.(*RolloutFinished); err != nil || !ok || f.State != StateFaulted || f.Fault.Category != "exit" {
		t.Errorf("got %v, %v", data, err)
	}
	if _, err := (Event{Type: "rollout.paused", Data: []byte(`{}`)}).Decode(); err == nil {
		t.Error("an unknown type was accepted")
	}
	if _, err := (Event{Type: EventRunFinished, Data: []byte(`[]`)}).Decode(); err == nil {
		t.Error("data of another kind was accepted")
	}
}

// A real document says the same after it was read into the types and written again.
func TestDecodeLosesNothing(t *testing.T) {
	data, err := os.ReadFile("../internal/report/testdata/results.json")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := Validate("results", again); err != nil {
		t.Error(err)
	}
	var want, got any
	if err := errors.Join(json.Unmarshal(data, &want), json.Unmarshal(again, &got)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
