package attack

import "encoding/binary"

// sqlite is a data base of one table with one column and one row, in the format
// of SQLite 3: the first page is its header and the list of tables, the second
// the table.
func sqlite(table, column, value string) string {
	const page = 1024
	b := make([]byte, 2*page)
	copy(b, "SQLite format 3\x00")
	binary.BigEndian.PutUint16(b[16:], page)
	copy(b[18:], []byte{1, 1, 0, 64, 32, 32}) // how it is written, and shares of a page
	for at, n := range map[int]uint32{24: 1, 28: 2, 40: 1, 44: 4, 56: 1, 92: 1, 96: 3040000} {
		binary.BigEndian.PutUint32(b[at:], n) // counters, pages, formats, UTF-8, who wrote it
	}
	sql := "CREATE TABLE " + table + "(" + column + " TEXT)"
	leaf(b[:page], 100, row(text("table"), text(table), text(table), field{1, "\x02"}, text(sql)))
	leaf(b[page:], 0, row(text(value)))
	return string(b)
}

// leaf makes a page, whose head is at an offset, one with a single row.
func leaf(page []byte, head int, row []byte) {
	at := len(page) - len(row)
	copy(page[at:], row)
	page[head] = 13 // a leaf of a table
	binary.BigEndian.PutUint16(page[head+3:], 1)
	binary.BigEndian.PutUint16(page[head+5:], uint16(at))
	binary.BigEndian.PutUint16(page[head+8:], uint16(at))
}

// A field is a value and its type as SQLite numbers them.
type field struct {
	kind int
	data string
}

func text(s string) field { return field{13 + 2*len(s), s} }

// row is a record under key 1: the types of its fields, then their data.
func row(fields ...field) []byte {
	var types, data []byte
	for _, f := range fields {
		types = append(types, varint(f.kind)...)
		data = append(data, f.data...)
	}
	record := append(append(varint(len(types)+1), types...), data...) // the length counts itself
	return append(append(varint(len(record)), 1), record...)
}

// varint is a number below 1<<14 as SQLite writes it.
func varint(n int) []byte {
	if n < 128 {
		return []byte{byte(n)}
	}
	return []byte{byte(n>>7) | 128, byte(n & 127)}
}
