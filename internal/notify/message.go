package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/wait/template"
)

// The types of messages, as CloudEvents have them.
const (
	TypeSuspended = "io.github.evalrun.rollout.suspended"
	TypeScoring   = "io.github.evalrun.rollout.scoring"
	TypeQuestion  = "io.github.evalrun.question.asked"
	TypeFinished  = "io.github.evalrun.run.finished"
	TypeRescored  = "io.github.evalrun.run.rescored"
)

// contentType is the content type of a CloudEvent in its structured form.
const contentType = "application/cloudevents+json; charset=utf-8"

// Message is a message to a target: the attributes of a CloudEvent (version 1.0). It contains no
// secret.
type Message struct {
	// ID stays the same however often the message is sent.
	ID string
	// Kind decides which targets get it.
	Kind Kind
	// Source names the run, Subject the part of it that the message is about.
	Source, Subject string
	Type            string
	Time            time.Time
	Data            json.RawMessage
}

// MessageID derives the id of one of the messages that an event of a run makes.
func MessageID(runID string, seq int64, part string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "evalrun:%s/events/%d/%s", runID, seq, part)).String()
}

// event is the message in the structured JSON form of CloudEvents.
func (m Message) event() ([]byte, error) {
	return json.Marshal(struct {
		SpecVersion     string          `json:"specversion"`
		ID              string          `json:"id"`
		Source          string          `json:"source"`
		Type            string          `json:"type"`
		Subject         string          `json:"subject,omitempty"`
		Time            string          `json:"time"`
		DataContentType string          `json:"datacontenttype"`
		Data            json.RawMessage `json:"data"`
	}{"1.0", m.ID, m.Source, m.Type, m.Subject, m.Time.UTC().Format(time.RFC3339Nano), "application/json", m.Data})
}

// secretPrefix begins a secret of Standard Webhooks.
const secretPrefix = "whsec_"

// parseSecret reads a secret of Standard Webhooks.
func parseSecret(text string) ([]byte, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(strings.TrimSpace(text), secretPrefix))
	if err != nil || !strings.HasPrefix(strings.TrimSpace(text), secretPrefix) || len(key) < 24 || len(key) > 64 {
		return nil, errors.New("expected a secret of Standard Webhooks: whsec_ and then 24 to 64 random bytes in base64")
	}
	return key, nil
}

// key is the key of the target's signatures.
func (t Target) key(resolve template.Resolver) ([]byte, error) {
	text, err := resolve.Expand(t.Secret)
	if err != nil {
		return nil, err
	}
	return parseSecret(text)
}

// signature signs a message as Standard Webhooks says: HMAC-SHA256 over id, timestamp and body.
func signature(key []byte, id string, at time.Time, body []byte) (timestamp, sig string) {
	timestamp = strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return timestamp, "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
