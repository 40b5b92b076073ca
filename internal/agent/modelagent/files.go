package modelagent

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/model"
)

// Part is a part of a message of the user: a text, or an image or a PDF. Both are templates.
type Part struct {
	Text string `json:"text,omitempty"`
	// File is a path in the eval set's folder, a data: URL, or a URL that the provider fetches.
	File string `json:"file,omitempty"`
}

// sent is a part as a request has it.
type sent struct {
	text string
	file *sentFile // nil for a text
}

// sentFile is a file as a request has it: its data or its URL.
type sentFile struct {
	name string
	// path is that of a file of the eval set's folder.
	path string
	// kind is its media type; empty if a URL does not tell.
	kind string
	// data is in base64.
	data, url string
}

func (f *sentFile) isPDF() bool { return f.kind == kindPDF }

// address is the URL at which a provider finds the file.
func (f *sentFile) address() string {
	if f.url != "" {
		return f.url
	}
	return "data:" + f.kind + ";base64," + f.data
}

// fileName is what the provider is told of the name.
func (f *sentFile) fileName() string { return path.Base(cmp.Or(f.path, "file.pdf")) }

const kindPDF = "application/pdf"

// kinds are the media types that are sent, by the ending of a name.
var kinds = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".pdf": kindPDF,
}

// fileLimits are what an API takes: bytes of base64 of an image, and of all files of a request. 0 is no
// limit of its own.
type fileLimits struct {
	image, all int64
	not        []string
}

// limitsOfFiles are as the providers publish them.
var limitsOfFiles = map[model.API]fileLimits{
	model.APIChat:      {all: 50_000_000},
	model.APIResponses: {all: 50_000_000},
	model.APIMessages:  {image: 5 << 20, all: 32_000_000},
	model.APIGemini:    {all: 50_000_000, not: []string{"image/gif"}},
}

// check says why an API does not take a file of a kind and a size in base64.
func (l fileLimits) check(api model.API, f *sentFile, size int64) error {
	switch {
	case slices.Contains(l.not, f.kind):
		return fmt.Errorf("%s is of the type %s, which the API %s does not take", f.name, f.kind, api)
	case f.url != "" && f.isPDF() && api == model.APIChat:
		return fmt.Errorf("%s is the URL of a PDF, which the API %s takes only as a file", f.name, api)
	case !f.isPDF() && l.image > 0 && size > l.image:
		return fmt.Errorf("%s is too large: the API %s takes images of %s, or of %s in base64, which it has", f.name, api,
			megabytes(l.image*3/4), megabytes(l.image))
	}
	return nil
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// folder reads files of an eval set's folder, and none outside of it.
type folder struct {
	dir string
	api model.API
	// all is how many bytes of base64 there are until now.
	all int64
}

// looking is how closely files are looked at.
type looking int

const (
	lookNot   looking = iota // only at their names
	lookAtAll                // at their size and their kind
	lookInto                 // at their data
)

// find finds what a value names.
func (d *folder) find(value string, how looking) (f *sentFile, err error) {
	value = strings.TrimSpace(value)
	if how == lookNot {
		return &sentFile{name: nameIn(value)}, nil
	}
	size := int64(0)
	u, _ := url.Parse(value)
	switch {
	case value == "":
		return nil, errors.New("the name of the file is empty")
	case strings.HasPrefix(value, "data:"):
		f, err = ofDataURL(value)
		if err == nil {
			size = int64(len(f.data))
		}
	case u != nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "":
		f = &sentFile{name: nameIn(value), url: value, kind: kinds[strings.ToLower(path.Ext(u.Path))]}
	default:
		f, size, err = d.open(value, how == lookInto)
	}
	if err != nil {
		return nil, err
	}
	limits := limitsOfFiles[d.api]
	if err := limits.check(d.api, f, size); err != nil {
		return nil, err
	}
	if d.all += size; d.all > limits.all {
		return nil, fmt.Errorf("with %s the files are too large: the API %s takes %s in all, as base64", f.name, d.api,
			megabytes(limits.all))
	}
	return f, nil
}

// nameIn is what people are told of the value of a file: of a data: URL only the beginning.
func nameIn(value string) string {
	if head, _, _ := strings.Cut(value, ","); strings.HasPrefix(value, "data:") {
		return model.Short(head)
	}
	return value
}

// ofDataURL reads a URL such as data:image/png;base64,….
func ofDataURL(value string) (*sentFile, error) {
	head, data, _ := strings.Cut(strings.TrimPrefix(value, "data:"), ",")
	kind, isBase64 := strings.CutSuffix(head, ";base64")
	kind, _, _ = strings.Cut(kind, ";")
	f := &sentFile{name: nameIn(value), kind: kind, data: data}
	switch _, err := base64.StdEncoding.DecodeString(data); {
	case !isBase64 || err != nil || data == "":
		return nil, errors.New("the data: URL is not of the form data:image/png;base64,…")
	case !slices.Contains(knownKinds(), kind):
		return nil, unknownKind(f.name, kind)
	}
	return f, nil
}

// open looks at a file of the folder, or reads it. size is that of its base64.
func (d *folder) open(name string, whole bool) (f *sentFile, size int64, err error) {
	local := filepath.FromSlash(name)
	if !filepath.IsLocal(local) {
		return nil, 0, fmt.Errorf("%s is not in the eval set's folder", name)
	}
	root, err := os.OpenRoot(cmp.Or(d.dir, "."))
	if err != nil {
		return nil, 0, fmt.Errorf("the eval set's folder: %w", err)
	}
	defer func() { _ = root.Close() }() // only read
	info, err := root.Stat(local)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, fmt.Errorf("the eval set's folder has no file %s%s", name, input.NearFile(filepath.Join(d.dir, local)))
	case err == nil && !info.Mode().IsRegular():
		return nil, 0, fmt.Errorf("%s is no file", name)
	}
	var data []byte
	if err == nil {
		data, err = read(root, local, whole)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s cannot be read: %w", name, withoutPath(err))
	}
	f = &sentFile{name: name, path: name, kind: http.DetectContentType(data)}
	if !slices.Contains(knownKinds(), f.kind) {
		return nil, 0, unknownKind(name, f.kind)
	}
	if whole {
		f.data = base64.StdEncoding.EncodeToString(data)
	}
	return f, (info.Size() + 2) / 3 * 4, nil
}

// read reads a file, or as much of it as shows its kind. What is larger than mostRead no API takes.
func read(root *os.Root, name string, whole bool) ([]byte, error) {
	const sniffed, mostRead = 512, 50 << 20
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read
	if whole {
		return io.ReadAll(io.LimitReader(file, mostRead))
	}
	return io.ReadAll(io.LimitReader(file, sniffed))
}

// withoutPath leaves the path out of an error, which says it in its own words.
func withoutPath(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

func knownKinds() (out []string) {
	for _, kind := range kinds {
		out = append(out, kind)
	}
	return out
}

func unknownKind(name, kind string) error {
	kind, _, _ = strings.Cut(kind, ";")
	return fmt.Errorf("%s is no image (PNG, JPEG, GIF, WebP) and no PDF, but %s", name, cmp.Or(kind, "of no known type"))
}

// parts fills the parts of a message, and finds what its files name.
func (d *folder) parts(m Message, inputs json.RawMessage, how looking) (out []sent, missing string, err error) {
	for _, p := range m.Parts {
		value, lacking := fill(cmp.Or(p.File, p.Text), inputs)
		if missing = cmp.Or(missing, lacking); p.File == "" {
			out = append(out, sent{text: value})
			continue
		}
		if lacking != "" {
			continue
		}
		f, err := d.find(value, how)
		if err != nil {
			return nil, missing, err
		}
		out = append(out, sent{file: f})
	}
	return out, missing, nil
}

// shown is what the trajectory has of parts: their texts, and the names of files.
func shown(parts []sent) string {
	var lines []string
	for _, p := range parts {
		if f := p.file; f != nil {
			lines = append(lines, "[file "+f.name+"]")
		} else {
			lines = append(lines, p.text)
		}
	}
	return strings.Join(lines, "\n")
}

// sends is the [agent.Type].Sends of models.
func sends(e agent.Entry, inputs json.RawMessage, dir string) (names []string, err error) {
	s, ok := e.Settings.(*Settings)
	if !ok || e.Model == nil {
		return nil, nil
	}
	d := &folder{dir: dir, api: model.API(e.Model.API)}
	for _, m := range s.Messages {
		parts, _, err := d.parts(m, inputs, lookAtAll)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			if p.file != nil && p.file.path != "" {
				names = append(names, p.file.path)
			}
		}
	}
	return names, nil
}

func chatParts(parts []sent) object {
	var list []object
	for _, p := range parts {
		switch f := p.file; {
		case f == nil:
			list = append(list, object{"type": "text", "text": p.text})
		case f.isPDF():
			list = append(list, object{"type": "file", "file": object{"filename": f.fileName(), "file_data": f.address()}})
		default:
			list = append(list, object{"type": "image_url", "image_url": object{"url": f.address()}})
		}
	}
	return object{"role": "user", "content": list}
}

func responsesParts(parts []sent) object {
	var list []object
	for _, p := range parts {
		switch f := p.file; {
		case f == nil:
			list = append(list, object{"type": "input_text", "text": p.text})
		case f.isPDF() && f.url != "":
			list = append(list, object{"type": "input_file", "file_url": f.url})
		case f.isPDF():
			list = append(list, object{"type": "input_file", "filename": f.fileName(), "file_data": f.address()})
		default:
			list = append(list, object{"type": "input_image", "image_url": f.address(), "detail": "auto"})
		}
	}
	return object{"role": "user", "content": list}
}

func messagesParts(parts []sent) object {
	var list []object
	for _, p := range parts {
		f := p.file
		if f == nil {
			list = append(list, object{"type": "text", "text": p.text})
			continue
		}
		kind, source := "image", object{"type": "base64", "media_type": f.kind, "data": f.data}
		if f.isPDF() {
			kind = "document"
		}
		if f.url != "" {
			source = object{"type": "url", "url": f.url}
		}
		list = append(list, object{"type": kind, "source": source})
	}
	return object{"role": "user", "content": list}
}

func geminiParts(parts []sent) object {
	var list []object
	for _, p := range parts {
		switch f := p.file; {
		case f == nil:
			list = append(list, object{"text": p.text})
		case f.url == "":
			list = append(list, object{"inlineData": object{"mimeType": f.kind, "data": f.data}})
		case f.kind == "":
			list = append(list, object{"fileData": object{"fileUri": f.url}})
		default:
			list = append(list, object{"fileData": object{"fileUri": f.url, "mimeType": f.kind}})
		}
	}
	return object{"role": "user", "parts": list}
}
