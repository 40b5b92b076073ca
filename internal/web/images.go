package web

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// The limits of the images of a page: bytes of one and of all, in base64, and how deep they are looked for.
const (
	maxImage      = 4 << 20
	maxImages     = 16 << 20
	maxImageDepth = 12
)

// imageTypes are the kinds of images that are shown. An image that is a document, as SVG is, never is.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// picture is an image that a tool has given.
type picture struct {
	// URL has the image itself. It is made of a known type and of base64 alone.
	URL   template.URL
	Label string
	// data is that of the URL, by which an image is known that comes twice.
	data string
}

// pictures takes the images out of values.
type pictures struct {
	all []picture
	// left is how many bytes of base64 a page may still have.
	left *int
}

// take returns a value in which the data of images are replaced by what they are. What is no image by its
// first bytes, whatever it says of itself, stays as it is.
func (p *pictures) take(raw json.RawMessage) json.RawMessage {
	if !bytes.Contains(raw, []byte("image")) {
		return raw
	}
	v, ok := decode(raw)
	if !ok {
		return raw
	}
	before := len(p.all)
	if v = p.walk(v, 0); len(p.all) == before {
		return raw
	}
	out, err := jsonobj.Marshal(v)
	if err != nil {
		return raw // it has come from JSON
	}
	return out
}

func (p *pictures) walk(v any, depth int) any {
	if depth > maxImageDepth {
		return v
	}
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = p.walk(v[i], depth+1)
		}
	case map[string]any:
		kind, _ := v["mimeType"].(string)
		if v["type"] == "image" || strings.HasPrefix(kind, "image/") {
			for _, key := range []string{"data", "blob"} {
				if text, ok := v[key].(string); ok {
					v[key] = p.add(text)
				}
			}
		}
		for key := range v {
			v[key] = p.walk(v[key], depth+1)
		}
	case string: // what an agent passes on as text is often JSON once more
		if len(v) < maxImage && strings.HasPrefix(v, "{") && strings.Contains(v, "image") {
			if inner, ok := decode(json.RawMessage(v)); ok {
				before := len(p.all)
				if inner = p.walk(inner, depth+1); len(p.all) > before {
					return inner
				}
			}
		}
	}
	return v
}

// add adds an image, and returns what stands in its place.
func (p *pictures) add(text string) string {
	data, err := base64.StdEncoding.DecodeString(strings.TrimRight(text, "\n"))
	if err != nil {
		return text
	}
	kind := http.DetectContentType(data)
	if !slices.Contains(imageTypes, kind) {
		return text
	}
	label := fmt.Sprintf("%s, %d bytes", kind, len(data))
	if slices.ContainsFunc(p.all, func(one picture) bool { return one.data == text }) {
		return "(" + label + ")"
	}
	if len(text) > maxImage || len(text) > *p.left {
		p.all = append(p.all, picture{Label: label + ", too large for this page", data: text})
		return "(" + label + ")"
	}
	*p.left -= len(text)
	p.all = append(p.all, picture{URL: template.URL("data:" + kind + ";base64," + base64.StdEncoding.EncodeToString(data)), Label: label, data: text}) //nolint:gosec // as its field says
	return "(" + label + ")"
}
