module github.com/bermhq/berm

go 1.26
