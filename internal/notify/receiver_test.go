package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// verify checks a message as the text of Standard Webhooks (section "Verifying webhook
// authenticity") tells a receiver to, and shares no code with the sender.
func verify(secret string, h http.Header, body []byte, now time.Time) error {
	encoded, ok := strings.CutPrefix(secret, "whsec_")
	if !ok {
		return errors.New("the secret has another prefix")
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return err
	}
	id, timestamp := h.Get("webhook-id"), h.Get("webhook-timestamp")
	if id == "" || strings.Contains(id, ".") {
		return fmt.Errorf("webhook-id %q", id)
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return err
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > 5*time.Minute || age < -5*time.Minute {
		return fmt.Errorf("the message is %s old: it may be replayed", age)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "." + string(body)))
	want := mac.Sum(nil)
	for _, one := range strings.Split(h.Get("webhook-signature"), " ") {
		version, text, _ := strings.Cut(one, ",")
		got, err := base64.StdEncoding.DecodeString(text)
		if version == "v1" && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return errors.New("no signature fits")
}

// The vector that is published with the standard holds the verifier, and the sender.
func TestStandardWebhooksVector(t *testing.T) {
	at, body := time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`)
	const id, want = "msg_p5jXN8AQM9LWM0D4loKWxJek", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", "1614265330")
	h.Set("webhook-signature", want)
	if err := verify(testSecret, h, body, at); err != nil {
		t.Errorf("the verifier: %v", err)
	}
	key, err := parseSecret(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	if timestamp, got := signature(key, id, at, body); got != want || timestamp != "1614265330" {
		t.Errorf("got %s, %s", timestamp, got)
	}
	body[0] = ' '
	if verify(testSecret, h, body, at) == nil {
		t.Error("the verifier takes anything")
	}
}

// received is a CloudEvent as a receiver reads it.
type received struct {
	SpecVersion, ID, Source, Type, Subject, DataContentType string
	Time                                                    time.Time
	Data                                                    json.RawMessage
}

// receiver is a webhook's other side. What comes is verified.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	got []received
	// answer, if not nil, answers in place of 204.
	answer http.HandlerFunc
}

func newReceiver(t *testing.T, now func() time.Time) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err == nil {
			err = verify(testSecret, req.Header, body, now())
		}
		var e received
		if err == nil {
			err = json.Unmarshal(body, &e)
		}
		switch {
		case err != nil:
			t.Error(err)
		case req.Method != http.MethodPost || req.Header.Get("Content-Type") != "application/cloudevents+json; charset=utf-8":
			t.Errorf("%s with %s", req.Method, req.Header.Get("Content-Type"))
		case e.SpecVersion != "1.0" || e.ID != req.Header.Get("webhook-id") || e.Source == "" || e.Type == "" || e.DataContentType != "application/json":
			t.Errorf("no CloudEvent, or the id of another: %s", body)
		}
		r.mu.Lock()
		r.got = append(r.got, e)
		answer := r.answer
		r.mu.Unlock()
		if answer != nil {
			answer(w, req)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answers(f http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// types are the types of what has come, without their prefix.
func (r *receiver) types() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.got {
		out = append(out, strings.TrimPrefix(e.Type, "io.github.evalrun."))
	}
	return out
}

// ids are the ids of what has come.
func (r *receiver) ids() (out []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.got {
		out = append(out, e.ID)
	}
	return out
}
