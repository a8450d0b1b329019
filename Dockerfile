# The longshore command line, for the relay, `longshore migrate`, and workers whose handlers are one module.
# A worker with dependencies of its own is better off in your own image: `npm install longshore` there, and start it
# with `npx longshore worker ./tasks.js`.

FROM node:20-slim AS build
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
COPY . .
# Packing builds first; what runs here is then what is published.
RUN npm pack && tar -xzf longshore-*.tgz

FROM node:20-slim
ENV NODE_ENV=production
WORKDIR /app
# No optional packages: they are the embedded stores of `longshore dev`.
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --ignore-scripts --omit=optional && npm cache clean --force
COPY --from=build /build/package ./
RUN ln -s /app/dist/cli/main.js /usr/local/bin/longshore
USER node
# A module in this folder finds the library under its name: import { defineTask } from 'longshore'
ENTRYPOINT ["longshore"]
CMD ["--help"]
