# title: Graphviz: layout to SVG
# area: Graphics
echo 'digraph{a->b->c;a->c;c->d[label=x]}' | dot -Tsvg | grep -v Generated | md5sum
