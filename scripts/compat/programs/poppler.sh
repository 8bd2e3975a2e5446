# title: PDF: made by ImageMagick's kin, read by Poppler
# area: Graphics
MPLBACKEND=Agg python3 -c "
import matplotlib.pyplot as plt
plt.title('Hello PDF'); plt.plot([1,2]); plt.savefig('a.pdf')"
pdftotext a.pdf - | grep Hello; pdfinfo a.pdf | grep -E '^(Pages|Page size)'; pdftoppm -r 20 -png a.pdf p; identify -format '%m %w %h\n' p*.png
