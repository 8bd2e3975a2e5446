"""Quarterly revenue by region from a CSV of orders.

Prints a table and writes a grouped bar chart to out/revenue.svg.
Only the standard library is used.
"""

import csv
import sys
from collections import defaultdict
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from xml.sax.saxutils import escape

COLORS = ["#2f6f9f", "#e08e45", "#5a9e6f", "#b0556a"]


def load_orders(path):
    """Return (orders, skipped); a row with a missing or bad number is skipped."""
    orders, skipped = [], []
    with open(path, newline="", encoding="utf-8") as f:
        for line, row in enumerate(csv.DictReader(f), start=2):
            try:
                day = date.fromisoformat(row["date"])
                revenue = int(row["units"]) * Decimal(row["unit_price"])
            except (ValueError, InvalidOperation):
                skipped.append(line)
                continue
            orders.append((f"Q{(day.month - 1) // 3 + 1}", row["region"], row["product"], revenue))
    return orders, skipped


def totals_by(orders, *keys):
    totals = defaultdict(Decimal)
    for quarter, region, product, revenue in orders:
        fields = {"quarter": quarter, "region": region, "product": product}
        totals[tuple(fields[k] for k in keys)] += revenue
    return totals


def print_table(quarters, regions, cells):
    width = max(len(r) for r in regions + ["Region", "Total"])
    print("Region".ljust(width), *(q.rjust(12) for q in quarters), "Total".rjust(12))
    print("-" * (width + 13 * (len(quarters) + 1)))
    for region in regions:
        values = [cells[q, region] for q in quarters]
        print(region.ljust(width), *(f"{v:12,.2f}" for v in values), f"{sum(values):12,.2f}")
    print("-" * (width + 13 * (len(quarters) + 1)))
    columns = [sum(cells[q, r] for r in regions) for q in quarters]
    print("Total".ljust(width), *(f"{v:12,.2f}" for v in columns), f"{sum(columns):12,.2f}")


def nice_ceiling(value):
    """Round up to 1, 2, 2.5 or 5 times a power of ten, for the axis."""
    magnitude = 1
    while magnitude * 10 <= value:
        magnitude *= 10
    for step in (1, 2, 2.5, 5, 10):
        if value <= step * magnitude:
            return step * magnitude
    return 10 * magnitude


def bar_chart(title, quarters, regions, cells):
    width, height, left, right, top, bottom = 760, 420, 72, 20, 64, 70
    plot_w, plot_h = width - left - right, height - top - bottom
    ceiling = nice_ceiling(float(max(cells.values())))
    y = lambda v: top + plot_h * (1 - float(v) / ceiling)

    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="Helvetica, Arial, sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="32" font-size="19" font-weight="bold" fill="#222">{escape(title)}</text>',
    ]
    for i in range(6):
        value = ceiling * i / 5
        svg.append(
            f'<line x1="{left}" x2="{width - right}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>'
            f'<text x="{left - 8}" y="{y(value) + 4:.1f}" font-size="12" text-anchor="end" fill="#555">{value:,.0f}</text>'
        )
    group = plot_w / len(quarters)
    bar = group * 0.8 / len(regions)
    for qi, quarter in enumerate(quarters):
        start = left + qi * group + group * 0.1
        for ri, region in enumerate(regions):
            value = cells[quarter, region]
            svg.append(
                f'<rect x="{start + ri * bar:.1f}" y="{y(value):.1f}" width="{bar - 2:.1f}" '
                f'height="{top + plot_h - y(value):.1f}" fill="{COLORS[ri % len(COLORS)]}">'
                f"<title>{escape(region)}, {quarter}: {value:,.2f}</title></rect>"
            )
        svg.append(
            f'<text x="{left + (qi + 0.5) * group:.1f}" y="{top + plot_h + 20}" font-size="13" '
            f'text-anchor="middle" fill="#333">{quarter}</text>'
        )
    svg.append(
        f'<line x1="{left}" x2="{width - right}" y1="{top + plot_h}" y2="{top + plot_h}" stroke="#333"/>'
        f'<text transform="translate(18 {top + plot_h / 2:.0f}) rotate(-90)" font-size="12" '
        f'text-anchor="middle" fill="#555">Revenue</text>'
    )
    for ri, region in enumerate(regions):
        x = left + ri * 110
        svg.append(
            f'<rect x="{x}" y="{height - 30}" width="13" height="13" fill="{COLORS[ri % len(COLORS)]}"/>'
            f'<text x="{x + 19}" y="{height - 19}" font-size="13" fill="#333">{escape(region)}</text>'
        )
    svg.append("</svg>")
    return "\n".join(svg) + "\n"


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "sales.csv"
    orders, skipped = load_orders(path)
    if not orders:
        sys.exit(f"{path}: no usable orders")
    quarters = sorted({o[0] for o in orders})
    regions = sorted({o[1] for o in orders})
    cells = totals_by(orders, "quarter", "region")

    print(f"Revenue by region and quarter ({len(orders)} orders)\n")
    print_table(quarters, regions, cells)

    products = totals_by(orders, "product")
    (best,), revenue = max(products.items(), key=lambda item: item[1])
    print(f"\nBest product: {best}, {revenue:,.2f} ({revenue / sum(products.values()):.0%} of all)")
    if skipped:
        print(f"Skipped {len(skipped)} rows with a missing or bad number: lines {', '.join(map(str, skipped))}")

    out = Path("out")
    out.mkdir(exist_ok=True)
    chart = out / "revenue.svg"
    chart.write_text(bar_chart("Revenue by region and quarter", quarters, regions, cells), encoding="utf-8")
    print(f"Chart written to {chart}")


if __name__ == "__main__":
    main()
