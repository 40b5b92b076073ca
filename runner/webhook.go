package runner

import "github.com/evalrun/evalrun/internal/webhook"

// webhooks returns a function that makes the URL by which the job of a trigger may answer; nil if
// there is no server.
func (w work) webhooks() (func(triggerID string) (string, error), error) {
	if w.o.PublicURL == "" {
		return nil, nil
	}
	key, err := webhook.LoadKey(w.s.Dir())
	if err != nil {
		return nil, err
	}
	return func(triggerID string) (string, error) { return key.URL(w.o.PublicURL, triggerID) }, nil
}
