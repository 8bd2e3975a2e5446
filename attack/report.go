package attack

import (
	"cmp"
	"slices"
	"time"
)

// Report is what a run of the suite has to say, and what `berm attack --json`
// prints. Package attack/report signs it, draws it and checks it.
type Report struct {
	Host    Host      `json:"host"`
	Target  string    `json:"target"`
	Command string    `json:"command,omitempty"` // what repeats the run
	Date    time.Time `json:"date"`              // when it began
	Build   Build     `json:"berm"`
	Suite   Suite     `json:"suite"`
	Cases   []Result  `json:"cases"`
	Benign  []Benign  `json:"benign"`
	Summary Summary   `json:"summary"`

	// Signature is over all the rest; nil if nobody has signed it.
	Signature *Signature `json:"signature,omitempty"`
}

// A Result is the verdict on one case.
type Result struct {
	ID        string     `json:"id"`
	Family    string     `json:"family"`
	Wall      string     `json:"wall"`
	Goal      string     `json:"goal"`
	Isolation string     `json:"isolation"`
	Boundary  string     `json:"boundary,omitempty"`
	Verdict   string     `json:"verdict"`
	Seen      *bool      `json:"seen"` // whether what is due was recorded; null where nothing is
	Evidence  string     `json:"evidence"`
	Seconds   float64    `json:"seconds"` // from before its sandbox was made until it was gone
	Neighbour *Neighbour `json:"neighbour,omitempty"`
}

// Unseen says whether something was due to be recorded and was not.
func (r Result) Unseen() bool { return r.Seen != nil && !*r.Seen }

// Finding says whether the result is a breach, or an attempt that nobody saw.
func (r Result) Finding() bool { return r.Verdict == Breached || r.Unseen() }

// Neighbour is how long an honest command took in another sandbox: before the
// case, and while it ran.
type Neighbour struct {
	Samples    int     `json:"samples"`
	Failed     int     `json:"failed"` // of these; each is a breach
	AloneP50MS float64 `json:"alone_p50_ms"`
	P50MS      float64 `json:"p50_ms"`
	P99MS      float64 `json:"p99_ms"`
	MaxMS      float64 `json:"max_ms"`
}

// Benign is what became of a program that does normal work. One that was
// hindered is a false block, and a finding.
type Benign struct {
	ID        string  `json:"id"`
	Goal      string  `json:"goal,omitempty"`
	Isolation string  `json:"isolation"`
	Hindered  bool    `json:"hindered"`
	NotRun    bool    `json:"not_run,omitempty"` // something that it needs is not there
	Evidence  string  `json:"evidence"`
	Seconds   float64 `json:"seconds"`
}

// Build is what attacked.
type Build struct {
	Version       string `json:"version"`
	Commit        string `json:"commit,omitempty"`
	Go            string `json:"go,omitempty"`
	BinarySHA256  string `json:"binary_sha256,omitempty"`
	RuntimeSHA256 string `json:"runtime_sha256,omitempty"` // of the program that sandboxes run in
}

// Suite is which cases this build knows, whether they were asked for or not.
type Suite struct {
	Cases  int    `json:"cases"`
	SHA256 string `json:"sha256"` // of all case files
}

// Signature is by whom and how a report was signed, in hex.
type Signature struct {
	Algorithm string `json:"algorithm"`
	Key       string `json:"key"` // the public one
	Value     string `json:"value"`
}

// Count counts verdicts.
type Count struct {
	Cases         int `json:"cases"`
	Contained     int `json:"contained"`
	Breached      int `json:"breached"`
	NotApplicable int `json:"not_applicable"`
	Inconclusive  int `json:"inconclusive"`
	Unseen        int `json:"unseen"`
}

// Summary counts all of them.
type Summary struct {
	Count
	Benign      int           `json:"benign"`       // programs that do normal work
	FalseBlocks int           `json:"false_blocks"` // and how many of them were hindered
	Findings    int           `json:"findings"`
	Seconds     float64       `json:"seconds"`
	Families    []FamilyCount `json:"families"`
}

// FamilyCount counts one family on one rung.
type FamilyCount struct {
	Isolation string `json:"isolation"`
	Family    string `json:"family"`
	Count
}

func (c *Count) add(r Result) {
	c.Cases++
	switch r.Verdict {
	case Contained:
		c.Contained++
	case Breached:
		c.Breached++
	case NotApplicable:
		c.NotApplicable++
	default:
		c.Inconclusive++
	}
	if r.Unseen() {
		c.Unseen++
	}
}

func newReport(opt Options, began time.Time) Report {
	return Report{Host: thisHost(), Target: opt.Target, Command: opt.Command, Date: began.UTC().Truncate(time.Second),
		Build: opt.Build, Suite: thisSuite(), Cases: []Result{}, Benign: []Benign{}, Summary: Summary{Families: []FamilyCount{}}}
}

// finish fills in what a case without a sandbox cannot know, and counts.
func (r *Report) finish(opt Options, began time.Time) {
	last := cmp.Or(opt.Isolation, "auto")
	for _, c := range r.Cases {
		if last == "auto" {
			last = cmp.Or(c.Isolation, last)
		}
	}
	for i := range r.Cases {
		r.Cases[i].Isolation = cmp.Or(r.Cases[i].Isolation, last)
	}
	for i := range r.Benign {
		r.Benign[i].Isolation = cmp.Or(r.Benign[i].Isolation, last)
	}
	r.Summary = Sum(r.Cases, r.Benign)
	r.Summary.Seconds = time.Since(began).Round(time.Millisecond).Seconds()
}

// Join adds what another run of the same suite has found, on another rung.
func (r *Report) Join(more Report) {
	seconds := r.Summary.Seconds + more.Summary.Seconds
	r.Cases, r.Benign = append(r.Cases, more.Cases...), append(r.Benign, more.Benign...)
	r.Summary = Sum(r.Cases, r.Benign)
	r.Summary.Seconds = seconds
}

// Sum counts, by rung and family in the order in which they come.
func Sum(cases []Result, benign []Benign) Summary {
	s := Summary{Families: []FamilyCount{}, Benign: len(benign)}
	for _, c := range cases {
		s.add(c)
		if c.Finding() {
			s.Findings++
		}
		i := slices.IndexFunc(s.Families, func(f FamilyCount) bool { return f.Isolation == c.Isolation && f.Family == c.Family })
		if i < 0 {
			i, s.Families = len(s.Families), append(s.Families, FamilyCount{Isolation: c.Isolation, Family: c.Family})
		}
		s.Families[i].add(c)
	}
	for _, b := range benign {
		if b.Hindered {
			s.FalseBlocks++
			s.Findings++
		}
	}
	return s
}

// timed says how long a verdict took.
func timed(judge func() Result) Result {
	began := time.Now()
	r := judge()
	r.Seconds = time.Since(began).Round(time.Millisecond).Seconds()
	return r
}
