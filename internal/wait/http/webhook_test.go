package http

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/wait/waittest"
)

const webhookURL = "http://127.0.0.1:8484/v1/hooks/evalrun_hook_open-sesame"

// The start of a job may name the URL by which the job can answer; null where there is none.
func TestHTTPWebhook(t *testing.T) {
	config := `{"P":{"source":"http","start":{"url":"$URL/jobs?callback={webhookUrl}","body":{"callback":"{webhookUrl}"}},"status":{"url":"$URL/jobs/{itemKey}"}}}`
	for url, want := range map[string]string{
		webhookURL: `POST /jobs?callback=http%3A%2F%2F127.0.0.1%3A8484%2Fv1%2Fhooks%2Fevalrun_hook_open-sesame {"callback":"` + webhookURL + `"}`,
		"":         `POST /jobs?callback= {"callback":null}`,
	} {
		s := waittest.NewServer(t, waittest.Reply(200, ""))
		p := pending(t)
		p.WebhookURL = url
		_, err := sourceFor(t, s, config, nil).Start(t.Context(), p)
		if diff := cmp.Diff([]string{want}, s.Requests()); diff != "" || err != nil {
			t.Error(err, diff)
		}
	}
}
