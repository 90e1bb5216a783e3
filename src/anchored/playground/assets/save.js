const download = (blob, name) => {
  const link = document.createElement("a")
  link.href = URL.createObjectURL(blob)
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(link.href), 1000)
}
const layers = [left, right].map((plot) => Bokeh.index.find_one(plot).export("png", true).canvas)
const picture = document.createElement("canvas")
picture.width = layers[0].width + layers[1].width
picture.height = Math.max(layers[0].height, layers[1].height)
const context = picture.getContext("2d")
context.fillStyle = getComputedStyle(document.body).backgroundColor
context.fillRect(0, 0, picture.width, picture.height)
context.drawImage(layers[0], 0, 0)
context.drawImage(layers[1], layers[0].width, 0)
picture.toBlob((blob) => download(blob, "anchored-playground.png"))
const rows = Array.from(points.data.x).map((x, i) => `${x},${points.data.y[i]}`)
download(new Blob(["x,y\n" + rows.join("\n") + "\n"], {type: "text/csv"}), "anchored-points.csv")
