package web

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/markup"
)

// The limits of the images of a page: bytes of one and of all, in base64, and the depth of the
// search for them.
const (
	maxImage      = 4 << 20
	maxImages     = 16 << 20
	maxImageDepth = 12
)

// imageTypes are the types of images that are shown. Images that are documents, such as SVG, are
// never shown.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// picture is an image that a tool returned.
type picture struct {
	// URL has the image itself. It is made of a known type and of base64 alone.
	URL   markup.URL
	Label string
	// data is the data of the URL. It tells whether an image comes twice.
	data string
}

// pictures takes the images out of values.
type pictures struct {
	all []picture
	// left is the number of bytes of base64 that still fit on the page.
	left *int
}

// take returns a value in which labels replace the data of images. Data whose first bytes are not
// those of an image stay as they are, whatever their declared type.
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
		return raw // the value came from JSON
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
	case string: // a text from an agent is often JSON once more
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

// add adds an image, and returns the text in its place.
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
	p.all = append(p.all, picture{
		URL: markup.URL("data:" + kind + ";base64," +
			base64.StdEncoding.EncodeToString(data)),
		Label: label, data: text,
	})
	return "(" + label + ")"
}
