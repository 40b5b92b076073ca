package model

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// API is a wire format.
type API string

// The wire formats.
const (
	APIChat      API = "chat"      // OpenAI's chat completions
	APIResponses API = "responses" // OpenAI's responses
	APIMessages  API = "messages"  // Anthropic's messages
	APIGemini    API = "gemini"    // Gemini's generateContent
	// APIEmbeddings is that of OpenAI's embeddings, which providers of chat and responses have, too.
	APIEmbeddings API = "embeddings"
)

// Provider says where models are, and how often they may be asked.
type Provider struct {
	API API `json:"api"`
	// BaseURL and Key may hold ${VAR} and ${VAR:-default}; they are resolved for each call. An
	// endpoint without a Key is asked without one.
	BaseURL string `json:"baseUrl"`
	Key     string `json:"key,omitempty"`
	// Concurrency is how many calls may be in flight at once.
	Concurrency int `json:"concurrency"`
	// RequestsPerMinute limits requests; 0 means that only Concurrency limits them.
	RequestsPerMinute int `json:"requestsPerMinute,omitempty"`
}

// DefaultURL has the base URLs of the providers that invented the wire formats.
var DefaultURL = map[API]string{
	APIChat:      "${OPENAI_BASE_URL:-https://api.openai.com/v1}",
	APIResponses: "${OPENAI_BASE_URL:-https://api.openai.com/v1}",
	APIMessages:  "${ANTHROPIC_BASE_URL:-https://api.anthropic.com}",
	APIGemini:    "${GOOGLE_GEMINI_BASE_URL:-https://generativelanguage.googleapis.com}",
}

// Options hold what endpoints need beside their providers. The zero value is usable.
type Options struct {
	// Client makes the requests; nil means one of its own.
	Client *http.Client
	// Pause waits; nil means by the clock. It ends early with the context, whose error it returns.
	Pause func(ctx context.Context, d time.Duration) error
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Pause == nil {
		o.Pause = pause
	}
	o.Client = Client(o.Client)
	return o
}

// Client returns a copy of a client, which may be nil, that follows no redirects: neither the key,
// which is in a header of its own, nor the question may go to anybody else.
func Client(from *http.Client) *http.Client {
	client := &http.Client{}
	if from != nil {
		*client = *from
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SetHeaders sets the headers that requests of a wire format have. The key may be empty.
func (a API) SetHeaders(h http.Header, key string) {
	h.Set("User-Agent", "evalrun")
	if a == APIMessages {
		h.Set("anthropic-version", "2023-06-01")
	}
	switch {
	case key == "":
	case a == APIMessages:
		h.Set("x-api-key", key)
	case a == APIGemini:
		h.Set("x-goog-api-key", key)
	default:
		h.Set("Authorization", "Bearer "+key)
	}
}

// Path returns the path below the base URL at which a model is asked.
func (a API) Path(model string) string {
	switch a {
	case APIResponses:
		return "/responses"
	case APIMessages:
		return "/v1/messages"
	case APIEmbeddings:
		return "/embeddings"
	case APIGemini:
		return "/v1beta/models/" + url.PathEscape(model) + ":generateContent"
	}
	return "/chat/completions"
}
