package web

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/internal/access"
)

// csrfKey makes the tokens of forms. Another start of the server makes other tokens, and an older
// form asks once more.
var csrfKey = []byte(rand.Text())

// answerer returns who sends a request, whether they may answer questions, and the token of their
// forms.
func answerer(r *http.Request) (name string, may bool, csrf string) {
	who := access.From(r.Context())
	mac := hmac.New(sha256.New, csrfKey)
	mac.Write([]byte(who.ID))
	name = who.Name
	if name == "" {
		name = who.ID
	}
	return name, who.May(access.Deliver), hex.EncodeToString(mac.Sum(nil))
}

func validCSRF(got, want string) bool {
	return subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}

// sameOrigin reports whether a request that changes something comes from a page of this server. A
// browser says so in every such request: in Sec-Fetch-Site, which no page can set, and in Origin.
// The latter is "null" for a form of a page whose Referrer-Policy is no-referrer, as that of ours
// is.
func sameOrigin(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	if site != "" && site != "same-origin" {
		return false
	}
	if r.Header.Get("Origin") == "null" {
		return site == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && origin.Host == r.Host
}

func microseconds(text string) (time.Time, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMicro(n), err
}
