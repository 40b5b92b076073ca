// Package hooks takes what jobs post to the webhooks of their triggers. It knows tokens and
// deliveries; listening and rate limits are the server's business. It needs no other credential
// than the URL, and reveals nothing about a token that it does not know.
package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/webhook"
	"github.com/evalrun/evalrun/runner"
)

const (
	// defaultMaxBody is how large a payload may be by default.
	defaultMaxBody = 4 << 20
	// maxFailure is how large the body of a failure may be.
	maxFailure = 64 << 10
)

// Options are the dependencies of a handler.
type Options struct {
	Service *service.Service
	// MaxBody is the largest size of a payload in bytes; 0 means 4 MiB.
	MaxBody int64
	// About, if not nil, is called with the trigger for which a request has a valid token.
	About func(r *http.Request, triggerID string)
	// Unknown, if not nil, is called with a request whose token is invalid. It reports whether the
	// request gets the ordinary answer, and not 429.
	Unknown func(r *http.Request) bool
	// Logger gets the errors of the store; nil for none. No token is ever logged.
	Logger *slog.Logger
}

type handler struct {
	o     Options
	key   webhook.Key
	large large
}

// New returns the handler of [webhook.Path] and the paths below it.
func New(o Options) (http.Handler, error) {
	if o.MaxBody == 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	key, err := webhook.LoadKey(o.Service.Runner().Dir())
	return &handler{o, key, make(large, maxLarge)}, err
}

// ServeHTTP implements http.Handler. It checks the token first: without one a caller learns nothing
// else, and no body is read.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		problem(w, http.StatusMethodNotAllowed, "method-not-allowed", "expected the method POST")
		return
	}
	token, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, webhook.Path), "/")
	triggerID, known := h.key.Trigger(token)
	if !known && h.o.Unknown != nil && !h.o.Unknown(r) {
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusTooManyRequests, "too-many-requests",
			"too many webhooks were guessed from this address; try again in a second")
		return
	}
	if !known || rest != "" && rest != "fail" {
		notFound(w)
		return
	}
	if h.o.About != nil {
		h.o.About(r, triggerID)
	}
	if err := h.o.Service.HasTrigger(r.Context(), triggerID); errors.Is(err, service.ErrNotFound) {
		notFound(w) // its run was removed
		return
	}
	turn := h.large.turn()
	defer turn.end()
	delivery, err := h.read(w, r, turn, rest == "fail")
	if err != nil {
		status, word := http.StatusBadRequest, "invalid-json"
		switch {
		case errors.As(err, new(*http.MaxBytesError)):
			status, word = http.StatusRequestEntityTooLarge, "body-too-large"
		case errors.Is(err, errBusy):
			status, word = http.StatusServiceUnavailable, "busy"
		}
		problem(w, status, word, err.Error())
		return
	}
	h.deliver(w, r, triggerID, delivery)
}

// read reads a delivery.
func (h *handler) read(w http.ResponseWriter, r *http.Request, turn *turn, failed bool) (runner.Delivery, error) {
	d := runner.Delivery{By: "webhook", ByJob: true}
	limit := h.o.MaxBody
	if failed {
		limit = maxFailure
	}
	body, err := turn.readAll(r.Context(), http.MaxBytesReader(w, r.Body, limit))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		return d, fmt.Errorf("expected a body of at most %d bytes: %w", limit, err)
	case errors.Is(err, errBusy):
		return d, err
	case err != nil:
		return d, errors.New("the body could not be read to its end")
	}
	if body = bytes.TrimSpace(body); len(body) == 0 {
		return d, errors.New("expected one JSON document as the body, got nothing; null stands for no payload")
	}
	if !failed {
		if d.Payload, err = compact(body); err != nil {
			return d, fmt.Errorf("expected one JSON document as the body: %w", err)
		}
		return d, nil
	}
	document, err := input.ParseJSON("body", body)
	if err != nil {
		return d, fmt.Errorf("expected one JSON document as the body: %w", err)
	}
	message := document.Member("message")
	if message == nil || message.Kind != input.String || strings.TrimSpace(message.Text) == "" {
		return d, errors.New(`expected {"message": "…"} with a text that says what went wrong`)
	}
	d.Failed, d.Message = true, message.Text
	return d, nil
}

// deliver delivers it, and answers when the delivery would survive a crash.
func (h *handler) deliver(w http.ResponseWriter, r *http.Request, triggerID string, d runner.Delivery) {
	// A body that was read whole is accepted, even if its sender is gone.
	ctx := context.WithoutCancel(r.Context())
	receipt, err := h.o.Service.Deliver(ctx, triggerID, d)
	if err != nil && receipt.Disposition != "" { // it was accepted: only a document is out of date
		h.o.Logger.Error("a results document is not up to date after a webhook", "trigger", triggerID, "error", err)
		err = nil
	}
	switch {
	case errors.Is(err, service.ErrNotFound) || receipt.Disposition == runner.Parked: // its run was removed
		notFound(w)
	case err != nil:
		h.o.Logger.Error("a webhook was not taken", "trigger", triggerID, "error", err)
		problem(w, http.StatusInternalServerError, "internal", "evalrun could not take it; post it again")
	case receipt.Disposition == runner.Late:
		problem(w, http.StatusGone, "late", "nobody waits for this any more; what was posted is kept and shown as late")
	default:
		status := http.StatusAccepted
		if receipt.Disposition == runner.Duplicate {
			status = http.StatusOK
		}
		answer(w, "application/json", status, map[string]any{"triggerId": triggerID, "disposition": receipt.Disposition})
	}
}

func notFound(w http.ResponseWriter) {
	problem(w, http.StatusNotFound, "not-found", "there is no such webhook")
}

// problem writes an error as RFC 9457 defines it.
func problem(w http.ResponseWriter, status int, word, detail string) {
	answer(w, "application/problem+json", status, map[string]any{"type": "urn:evalrun:problem:" + word,
		"title": http.StatusText(status), "status": status, "detail": detail})
}

func answer(w http.ResponseWriter, contentType string, status int, body any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
