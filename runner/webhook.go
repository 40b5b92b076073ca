package runner

import "github.com/evalrun/evalrun/internal/webhook"

// webhooks gives the URL by which the job of a trigger may answer; nil where there is no server.
func (s *Store) webhooks(public string) (func(triggerID string) (string, error), error) {
	if public == "" {
		return nil, nil
	}
	key, err := webhook.LoadKey(s.Dir())
	if err != nil {
		return nil, err
	}
	return func(triggerID string) (string, error) { return key.URL(public, triggerID) }, nil
}
