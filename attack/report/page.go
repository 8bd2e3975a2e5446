package report

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/bermhq/berm/attack"
)

//go:embed page.tmpl
var pageText string

//go:embed page.css
var style string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// policy forbids the page everything but its own style: no script, no request.
var policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
}()

// A view is what the template is given.
type view struct {
	attack.Report
	Policy   string
	Style    template.CSS
	Document template.HTML // as signed, spelled so that it is only ASCII

	Tone     string // of the headline: good, bad, unsure
	Headline string
	Subline  string
	Day      string
	Machine  string
	Bar      picture
	Host     host
	Rungs    []string
	Grid     []gridRow
	Layers   []layerView
	Findings []item
	Doubts   []item
	Families []familyView
	Benign   []benignView
	Beside   []besideView
	Facts    [][2]string
	Key      []string // of the signer, in groups that can be compared by eye
}

// An item is one case as it is shown.
type item struct {
	attack.Result
	Anchor string // where its evidence is; "" where it is shown a second time
	Class  string // what its mark looks like
	Word   string
	Mark   picture
	Again  string
}

type familyView struct {
	Name  string
	Count string
	Items []item
}

type benignView struct {
	attack.Benign
	Anchor string
	Class  string
	Word   string
	Mark   picture
}

// page makes the page of a document.
func page(doc []byte) ([]byte, error) {
	rep, _, err := parse(doc)
	if err != nil {
		return nil, err
	}
	tree, err := readTree(doc)
	if err != nil {
		return nil, err
	}
	v := look(clean(rep))
	v.Document = template.HTML(escape.Replace(string(canonical(nil, tree, true))))
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// look makes all that is seen of a report. It must depend on the report alone,
// or nobody could make the page again.
func look(rep attack.Report) view {
	v := view{Report: rep, Policy: policy, Style: template.CSS(style), Day: rep.Date.UTC().Format("2 January 2006, 15:04 UTC")}
	for i, r := range rep.Cases {
		it := show(i, r, rep.Command)
		k := slices.IndexFunc(v.Families, func(f familyView) bool { return f.Name == r.Family })
		if k < 0 {
			k, v.Families = len(v.Families), append(v.Families, familyView{Name: r.Family})
		}
		v.Families[k].Items = append(v.Families[k].Items, it)
		if !slices.Contains(v.Rungs, r.Isolation) {
			v.Rungs = append(v.Rungs, r.Isolation)
		}
		if r.Neighbour != nil {
			v.Beside = append(v.Beside, beside(it))
		}
		it.Anchor = "" // it is there a second time, and open
		switch {
		case r.Finding():
			v.Findings = append(v.Findings, it)
		case it.Class == "unsure":
			v.Doubts = append(v.Doubts, it)
		}
	}
	slices.SortStableFunc(v.Findings, func(a, b item) int { return strings.Compare(a.Class, b.Class) }) // breached, unseen
	slices.SortStableFunc(v.Families, func(a, b familyView) int { return order(a.Name) - order(b.Name) })
	for i, f := range v.Families {
		v.Families[i].Count = tally(f.Items)
	}
	for i, b := range rep.Benign {
		class, word := "held", "free"
		switch {
		case b.Hindered:
			class, word = "blocked", "hindered"
		case b.NotRun:
			class, word = "none", "not run"
		}
		v.Benign = append(v.Benign, benignView{b, fmt.Sprintf("b%d", i+1), class, word, mark(class)})
	}
	v.headline()
	v.Bar = bar(rep.Summary.Count)
	v.grid()
	v.Layers = layersOf(v.Families)
	v.Host = drawHost(v.Layers)
	v.Facts = facts(rep)
	v.Machine = machine(rep.Host)
	if s := rep.Signature; s != nil {
		v.Key = groups(s.Key)
	}
	return v
}

func order(family string) int {
	if i := slices.Index(attack.Families, family); i >= 0 {
		return i
	}
	return len(attack.Families)
}

func show(i int, r attack.Result, command string) item {
	it := item{Result: r, Anchor: fmt.Sprintf("c%d", i+1), Again: again(command, r.ID)}
	switch {
	case r.Verdict == attack.Breached:
		it.Class, it.Word = "breached", "breached"
	case r.Unseen():
		it.Class, it.Word = "unseen", "held, unseen"
	case r.Verdict == attack.Contained:
		it.Class, it.Word = "held", "contained"
	case r.Verdict == attack.NotApplicable:
		it.Class, it.Word = "none", "not applicable"
	default:
		it.Class, it.Word = "unsure", "inconclusive"
	}
	it.Mark = mark(it.Class)
	return it
}

var onlyShape = regexp.MustCompile(`^berm attack --only [^ ']+`)

// again is the command that made the report, with this case alone.
func again(command, id string) string {
	return onlyShape.ReplaceAllLiteralString(cmp.Or(command, "berm attack"), "berm attack") + " --only " + id
}

// tally is how a family did, in words.
func tally(items []item) string {
	n := map[string]int{}
	for _, it := range items {
		n[it.Word]++
	}
	var parts []string
	for _, w := range []string{"breached", "held, unseen", "inconclusive", "contained", "not applicable"} {
		if n[w] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[w], strings.Replace(w, "held, unseen", "unseen", 1)))
		}
	}
	return strings.Join(parts, ", ")
}

func (v *view) headline() {
	s := v.Summary
	judged := s.Cases - s.NotApplicable
	switch {
	case s.Breached > 0:
		v.Tone, v.Headline = "bad", plural(s.Breached, "attack got through", "attacks got through")
	case s.Findings > 0:
		v.Tone, v.Headline = "bad", plural(s.Findings, "finding", "findings")
	case s.Inconclusive > 0:
		v.Tone, v.Headline = "unsure", plural(s.Inconclusive, "attack could not be judged", "attacks could not be judged")
	case judged == 0:
		v.Tone, v.Headline = "unsure", "Nothing was measured"
	case s.NotApplicable > 0:
		v.Tone, v.Headline = "good", "Every attack that applies here was contained"
	default:
		v.Tone, v.Headline = "good", "Every attack was contained"
	}
	v.Subline = fmt.Sprintf("%d of %d contained, in %s.", s.Contained, judged, span(s.Seconds))
	for _, extra := range []struct {
		n    int
		text string
	}{{s.Unseen, "went unrecorded"}, {s.Inconclusive, "could not be judged"}, {s.NotApplicable, "did not apply here"}} {
		if extra.n > 0 {
			v.Subline += fmt.Sprintf(" %d %s.", extra.n, extra.text)
		}
	}
	if s.Benign > 0 {
		v.Subline += fmt.Sprintf(" Of %s that do normal work, %s hindered.", plural(s.Benign, "program", "programs"), was(s.FalseBlocks))
	}
}

func was(n int) string {
	switch n {
	case 0:
		return "none was"
	case 1:
		return "one was"
	}
	return fmt.Sprintf("%d were", n)
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func span(seconds float64) string {
	if seconds >= 120 {
		return fmt.Sprintf("%.0f minutes", seconds/60)
	}
	return fmt.Sprintf("%.0f seconds", seconds)
}

func machine(h attack.Host) string {
	parts := []string{cmp.Or(h.Distribution, "Linux"), "kernel " + h.Kernel, plural(h.CPUs, "CPU", "CPUs"), size(h.MemoryBytes)}
	return strings.Join(parts, " · ")
}

func size(n int64) string {
	if n >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
}

// facts are what a reader needs to say what this is a report of.
func facts(rep attack.Report) (out [][2]string) {
	add := func(name, value string) {
		if value != "" {
			out = append(out, [2]string{name, value})
		}
	}
	h, b := rep.Host, rep.Build
	add("Target", rep.Target)
	add("Command", rep.Command)
	add("Berm", strings.TrimSpace(b.Version+" "+b.Commit))
	add("Its SHA-256", b.BinarySHA256)
	add("Runtime SHA-256", b.RuntimeSHA256)
	add("Suite", plural(rep.Suite.Cases, "case", "cases")+" known to this build")
	add("Suite SHA-256", rep.Suite.SHA256)
	add("System", strings.TrimSpace(h.Distribution+" · kernel "+h.Kernel+" · "+h.Arch))
	processor := strings.TrimSpace(h.CPUModel + " × " + fmt.Sprint(h.CPUs))
	if h.Virtual {
		processor += ", on a hypervisor"
	}
	add("Processor", processor)
	add("Memory", size(h.MemoryBytes))
	add("Ran as root", map[bool]string{true: "yes", false: "no"}[h.Root])
	add("Cgroups", h.Cgroup)
	add("Security modules", cmp.Or(strings.Join(h.SecurityModules, ", "), "none that can be seen"))
	for _, name := range slices.Sorted(maps.Keys(h.Vulnerabilities)) {
		add(strings.ReplaceAll(name, "_", " "), h.Vulnerabilities[name])
	}
	return out
}

// groups cuts a key into pieces of eight.
func groups(key string) (out []string) {
	for part := range slices.Chunk([]rune(key), 8) {
		out = append(out, string(part))
	}
	return out
}
